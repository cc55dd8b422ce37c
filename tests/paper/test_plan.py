from __future__ import annotations

import pytest

from relatum.errors import InputError
from relatum.paper import published
from relatum.paper.cells import Plan, Request
from relatum.paper.grid import Scale
from relatum.paper.plan import plan

COUNTS = {  # name -> pretraining runs, evaluations that are commands, cells; three seeds
    # runs: 5 methods on 4 datasets, supervised on 3 and on coarse labels, random ResNet-32, random ResNet-34 (where
    # supervised on STL-10 starts); evaluations: 5 x 6, random on 4 label sets, supervised transfer 2 and STL-10
    "main": ((5 * 4 + 4 + 2) * 3, (5 * 6 + 4 + 3) * 3, 42),
    "linear-evaluation": (6 * 6 * 3 + 2 * 3, 5 * 6 * 3 + 6 * 3, 42),
    "slimagenet": (5 * 3, 4 * 3, 5),
    # a delta needs the result at home too: 5 methods on 4 columns; supervised has its own classifier there
    "domain-transfer": ((6 * 4 + 2) * 3, (7 * 4 + 5 * 4) * 3, 56),
    "grain": (5 * 2 * 3 + 4 * 3 + 2 * 3, 6 * 4 * 3, 28),
    "finetune": (6 * 3, 6 * 3, 20),
    "backbones-linear": (4 * 4 * 2 * 3 + 4 * 3, 4 * 8 * 3, 40),
    "backbones-grain": (3 * 4 * 3 + 2 * 4 * 3 + 4 * 3, 4 * 8 * 3, 40),
    "backbones-transfer": (4 * 4 * 2 * 3 + 4 * 3, 5 * 8 * 3, 40),
    "augmentations": (3 * 5 * 3, 2 * 5 * 3, 15),
    "semi-supervised-cifar10": (7 * 3, 6 * 3, 12),
    "semi-supervised-cifar100": (7 * 3, 6 * 3, 12),
    "aggregation": (4 * 2 * 3, 4 * 2 * 3, 8),
    "head": (3 * 2 * 3, 3 * 5 * 3, 15),
    "claims": (0, 0, 0),
    "fig-depth": (5 * 6 * 3, 5 * 6 * 3, 15),
    "fig-augmentations": (3 * 5 * 3, 2 * 5 * 3, 15),
    "fig-semi-supervised": (14 * 3, 12 * 3, 24),
    "retrieval": (2, 2, 2),
    "retrieval-errors": (6, 6, 6),
    "tsne": (3, 3, 3),
    "tsne-super": (3, 3, 3),
    # seed 1 of 25 rows; supervised has its own classifier on CIFAR-10
    "modern": (26, 26 * 4 - 1, 26 * 6),
}


PAPER = published.TABLES + published.FIGURES


def commands(p: Plan) -> int:
    return sum(e.protocol != "classifier" for e in p.evaluations)


def cells(p: Plan) -> int:
    return sum(len(t.cells) for t in p.tables)


@pytest.mark.parametrize("name", published.NAMES)
def test_runs_evaluations_and_cells_of_each_table(name: str) -> None:
    p = plan([name])
    assert (len(p.runs), commands(p), cells(p)) == COUNTS[name]


def test_random_backbones_are_one_run_per_seed_and_backbone() -> None:
    p = plan(["backbones-linear", "backbones-grain", "backbones-transfer"])
    assert sum(r.method == "random" for r in p.runs) == 4 * 3


def test_shared_pretraining_appears_once_across_tables() -> None:
    whole = plan([n for n in PAPER if n != "claims"])
    alone = {r for n in PAPER for r in plan([n]).runs}
    assert len(whole.runs) == len(alone) == len({r.id for r in whole.runs}) == 321
    assert len(whole.evaluations) == len({e.id for e in whole.evaluations})
    assert set(plan(["retrieval-errors"]).runs) < set(plan(["backbones-linear"]).runs)


def test_the_study_of_k_uses_its_own_chains_and_a_validation_split() -> None:
    runs = {r.method: r for r in plan(["augmentations"]).runs if r.views == 8}
    assert {r.val_fraction for r in runs.values()} == {0.2}
    assert {r.epochs for r in runs.values()} == {100}
    assert runs["supervised"].set == (("views.policy", "relational"),)
    assert runs["rotation"].set == (("views.policy", "rotation-study"),)
    assert (runs["rotation"].batch_size, runs["relational"].batch_size) == (128, 64)
    assert {e.split for e in plan(["augmentations"]).evaluations} == {"val"}


def test_filters_keep_only_their_cells() -> None:
    p = plan(["linear-evaluation"], Request(("cifar10",), ("conv4",), ("relational", "simclr"), (1,)))
    assert cells(p) == 2
    assert {(r.method, r.data, r.backbone, r.seed) for r in p.runs} == {
        ("relational", "cifar10", "conv4", 1),
        ("simclr", "cifar10", "conv4", 1),
    }


def test_datasets_filter_is_what_is_pretrained_on() -> None:
    p = plan(["domain-transfer"], Request(datasets=("cifar10",), backbones=("conv4",), seeds=(1,)))
    assert {c.column.key for c in p.tables[0].cells} == {"conv4-10-100"}  # the delta would need a run on CIFAR-100
    grain = plan(["grain"], Request(datasets=("cifar100",), backbones=("conv4",)))
    assert {r.data for r in grain.runs if r.method == "supervised"} == {"cifar100", "cifar100-20"}


def test_a_single_dataset_or_backbone_can_be_replaced_and_the_title_says_so() -> None:
    p = plan(["finetune"], Request(datasets=("cifar10",), backbones=("conv4",), seeds=(1,)))
    sheet = p.tables[0].sheets[0]
    assert {(r.data, r.backbone) for r in p.runs if r.method != "random"} == {("cifar10", "conv4")}
    assert all(c.paper.mean is None for c in sheet.cells)
    assert not any(c.kind == "literature" for c in sheet.cells)
    assert "cifar10 in place of stl10" in sheet.title
    assert "conv4 in place of resnet34" in sheet.title


def test_scaled_down_titles_say_so_and_unchanged_ones_do_not() -> None:
    request = Request(("cifar10",), ("conv4",), (), (1,), Scale(4, 1, 2000))
    title = plan(["linear-evaluation"], request).tables[0].sheets[0].title
    assert "K = 4 (paper: 32)" in title
    assert "1 of 200 epochs" in title
    assert "2,000 images" in title
    same = Request(("cifar10",), ("conv4",), (), (1,), Scale(32, 200))
    assert plan(["linear-evaluation"], same).tables[0].sheets[0].title == "Linear evaluation (Table 2)"


def test_the_title_says_what_was_scaled_down_in_finetuning() -> None:
    request = Request(methods=("supervised",), scale=Scale(epochs=5, limit_train=100))
    sheet = plan(["finetune"], request).tables[0].sheets[0]  # from random weights: nothing is pretrained
    assert sheet.remarks == ("finetuned for 5 of 100 epochs", "finetuned on 100 labelled images")
    both = plan(["finetune"], Request(methods=("relational",), scale=Scale(epochs=5))).tables[0].sheets[0]
    assert both.remarks == ("5 of 300 epochs", "finetuned for 5 of 100 epochs")


def test_what_is_taken_away_is_compared_with_the_paper_s_too() -> None:
    # ResNet-32 on tiny-ImageNet has K = 16 in the paper, so that --views 16 changes the Conv-4 that is taken away only.
    request = Request(("tiny-imagenet",), methods=("relational",), seeds=(1,), scale=Scale(views=16))
    cell = plan(["fig-depth"], request).tables[0].cells[0]
    assert cell.remarks == ("relational reasoning with K = 16 (paper: 32)",)


def test_a_cell_s_remarks_are_its_own() -> None:
    request = Request(("cifar10",), ("conv4",), ("relational", "simclr", "random"), (1,), Scale(views=4))
    remarks = {c.row.key: c.remarks for c in plan(["linear-evaluation"], request).tables[0].cells}
    changed = ("relational reasoning with K = 4 (paper: 32)",)
    assert remarks == {"relational": changed, "simclr": (), "random": ()}


def test_columns_and_captions_name_what_was_put_in() -> None:
    sheet = plan(["slimagenet"], Request(datasets=("cifar10",))).tables[0].sheets[0]
    assert [c.title for c in sheet.columns] == ["cifar10 (paper: SlimageNet)"]
    assert sheet.caption.endswith("Here: cifar10 in place of slimagenet.")
    study = plan(["fig-semi-supervised"], Request(datasets=("stl10",))).tables[0]
    assert [s.table.title for s in study.sheets] == [f"Semi-supervised, stl10 (paper: CIFAR-{n})" for n in (10, 100)]
    assert "Here" not in plan(["slimagenet"]).tables[0].caption


def test_a_dataset_that_one_part_has_is_not_put_into_another() -> None:
    figure = plan(["fig-semi-supervised"], Request(datasets=("cifar10",), seeds=(1,))).tables[0]
    assert [s.table.name for s in figure.sheets] == ["semi-supervised-cifar10"]
    assert figure.remarks == ()


def test_views_keeps_the_columns_of_the_study_up_to_k() -> None:
    p = plan(["augmentations"], Request(scale=Scale(views=4)))
    assert [c.key for c in p.tables[0].sheets[0].columns] == ["k2", "k4"]
    assert p.tables[0].sheets[0].remarks == ()


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request(methods=("deepcluster",)), "methods: .*relational"),
        (Request(datasets=("stl10", "cifar10")), "datasets: slimagenet"),
    ],
)
def test_filters_that_leave_nothing_are_refused_with_what_there_is(request_: Request, message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan(["slimagenet"], request_)


def test_bad_filters_are_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'cifar10'"):
        Request(datasets=("cifar1O",))
    with pytest.raises(InputError, match="views=1"):
        Request(scale=Scale(views=1))
    with pytest.raises(InputError, match="seed = -1 is out of range"):
        Request(seeds=(-1,))
    with pytest.raises(InputError, match="lists 2 more than once"):
        Request(seeds=(1, 2, 2))


def test_pictures_need_one_seed_the_user_s_first_if_given() -> None:
    assert {r.seed for r in plan(["tsne"]).runs} == {1}
    assert {r.seed for r in plan(["tsne"], Request(seeds=(3, 2))).runs} == {3}
