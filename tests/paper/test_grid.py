from __future__ import annotations

import dataclasses

import pytest

from relatum.paper import grid
from relatum.paper.grid import Evaluation, Pretraining, Scale

CONDITION = {
    "method": "relational",
    "pretrain": "cifar10",
    "dataset": "cifar10",
    "backbone": "conv4",
    "protocol": "linear",
}


def one(scale: Scale | None = None, **changes: object) -> Evaluation:
    return grid.evaluations({**CONDITION, **changes}, [1], scale or Scale())[0]


@pytest.mark.parametrize(
    ("changes", "views", "batch", "epochs"),
    [
        ({}, 32, 64, 200),
        ({"pretrain": "tiny-imagenet", "backbone": "resnet32"}, 16, 64, 200),
        ({"pretrain": "tiny-imagenet", "backbone": "conv4"}, 32, 64, 200),
        ({"pretrain": "slimagenet", "backbone": "resnet32"}, 16, 64, 200),
        ({"pretrain": "stl10", "backbone": "resnet34"}, 25, 64, 300),
        ({"method": "simclr"}, 2, 128, 200),
        ({"method": "rotation"}, 4, 128, 200),
        ({"method": "deepinfomax"}, 1, 128, 200),
        ({"method": "deepcluster", "pretrain": "stl10"}, 1, 128, 300),
    ],
)
def test_schedules_of_the_paper(changes: dict[str, str], views: int, batch: int, epochs: int) -> None:
    run = one(**changes).run
    assert (run.views, run.batch_size, run.epochs, run.preset) == (views, batch, epochs, "paper")


def test_ids_are_stable_readable_and_tell_conditions_apart() -> None:
    run = one().run
    assert run.id.startswith("relational-cifar10-conv4-k32-e200-s1-")
    assert run.id == one().run.id
    others = [
        dataclasses.replace(run, **change)
        for change in (
            *({"seed": 2}, {"views": 4}, {"epochs": 1}, {"limit_train": 2000}, {"labels": 0.1}),
            *({"val_fraction": 0.2}, {"preset": "official"}, {"set": (("objective.head", "dot"),)}),
        )
    ]
    assert len({run.id, *(r.id for r in others)}) == 9
    assert all(c.isalnum() or c in "-._" for r in others for c in r.id)


def test_random_weights_depend_on_seed_and_backbone_only() -> None:
    runs = {
        one(scale, method="random", pretrain=data, dataset=data).run
        for data in ("cifar10", "cifar100", "tiny-imagenet")
        for scale in (Scale(), Scale(views=4, epochs=1, limit_train=100))
    }
    assert len(runs) == 1
    command_line = runs.pop().arguments()
    assert command_line[:4] == ["pretrain", "shapes", "--method", "random"]
    assert "--epochs" not in command_line


def test_supervised_is_scored_by_its_own_classifier_at_home_and_probed_in_transfer() -> None:
    home = one(method="supervised")
    assert (home.protocol, home.file) == ("classifier", "classifier-cifar10-test.json")
    away = one(method="supervised", dataset="cifar100")
    assert (away.protocol, away.run) == ("linear", home.run)
    coarse = one(method="supervised", pretrain="cifar100", dataset="cifar100-20")
    assert (coarse.protocol, coarse.run.data) == ("classifier", "cifar100-20")
    scratch = one(method="supervised", pretrain="stl10", dataset="stl10", backbone="resnet34", protocol="finetune")
    assert (scratch.run.method, scratch.protocol, scratch.epochs) == ("random", "finetune", 100)


def test_labels_are_for_relational_reasoning_and_defaults_are_no_condition() -> None:
    assert one(labels=0.25).run.labels == 0.25
    assert one(method="supervised", labels=1.0).run.labels == 0.0
    assert one(set={"objective.aggregation": "cat"}).run == one().run
    assert one(set={"objective.aggregation": "max"}).run.set == (("objective.aggregation", "max"),)


def test_arguments_are_the_published_command() -> None:
    run = Pretraining("relational", "cifar10", "conv4", 4, 100, 64, 2, labels=0.1, val_fraction=0.2, limit_train=500)
    run = dataclasses.replace(run, set=(("objective.head", "dot"),))
    assert run.arguments() == [
        *["pretrain", "cifar10", "--method", "relational", "--backbone", "conv4", "--views", "4", "--batch-size", "64"],
        *["--epochs", "100", "--seed", "2", "--preset", "paper", "--labels", "0.1", "--val-fraction", "0.2"],
        *["--limit-train", "500", "--set", "objective.head=dot"],
    ]
    command_line = Evaluation(run, "linear", "cifar100", "val", "x", 100).arguments("RUN")
    assert command_line == [
        *["evaluate", "linear", "RUN", "--data", "cifar100", "--split", "val"],
        *["--epochs", "100", "--seed", "2", "--tag", "x"],
    ]


def test_scale_changes_runs_but_not_what_the_study_of_k_studies() -> None:
    assert one(Scale(views=4)).run.views == 4
    assert one(Scale(views=4), method="simclr").run.views == 2
    assert one(Scale(views=4), views=2).run.views == 2
    short = one(Scale(epochs=1), protocol="finetune")
    assert (short.run.epochs, short.epochs, short.tag) == (1, 1, "e1")
    assert one(Scale(epochs=1)).epochs == 100  # the linear probe stays as it is


def test_recipe_of_a_run_is_complete() -> None:
    recipe = one(set={"objective.aggregation": "max"}, val_fraction=0.2).run.recipe()
    assert (recipe.views.number, recipe.train.batch_size, recipe.data.val_fraction) == (32, 64, 0.2)
    assert recipe.objective.aggregation == "max"
