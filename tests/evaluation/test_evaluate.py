from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from relatum import evaluation, registry
from relatum.data.imageset import ImageSet
from relatum.data.sets.shapes import SHAPES
from relatum.errors import InputError, RelatumError
from relatum.evaluation import Result, evaluate
from relatum.evaluation.classifier import save_classifier
from relatum.evaluation.task import Task
from relatum.runs.weights import load_backbone

Images = Callable[..., ImageSet]
TOY, OTHER = replace(SHAPES, name="toy"), replace(SHAPES, name="other")
World = dict[tuple[str, str], ImageSet]
CONTRACT = {
    *("protocol", "dataset", "split", "accuracy", "pretrain", "settings", "n_train", "n_test"),
    *("version", "commit", "machine", "threads", "seconds", "details"),
}


def task(run: Path, data: str = "toy", split: str = "test", **settings: object) -> Task:
    from relatum.config.protocols import LinearSettings
    from relatum.runs.folder import read_recipe

    return Task(run, read_recipe(run), load_backbone(run), data, split, LinearSettings(**settings), 1, "linear")


def test_linear_writes_a_whole_result_file(run: Path) -> None:
    result = evaluate("linear", run, data="toy", epochs=40, settings={"lr": "0.01", "batch_size": 32})
    path = run / "evaluations" / "linear-toy-test.json"
    document = json.loads(path.read_text())
    assert document.keys() >= CONTRACT
    assert Result.load(path) == result
    assert result.accuracy is not None
    assert result.accuracy > 60
    assert result.n_train == 200
    assert result.n_test == 80
    assert result.pretrain["method"] == "random"
    assert result.pretrain["seed"] == 1
    settings = result.settings
    assert settings["epochs"] == 40
    assert settings["lr"] == 0.01
    assert settings["batch_size"] == 32
    assert settings["probe"] == "offline"
    assert settings["augmentation"] == "none"
    assert settings["preset"] == "paper"
    assert settings["reported"] == "last epoch"
    assert "eval" in settings["batch_norm"]
    assert settings["seed"] == 1
    assert result.details["backbone_unchanged"] is True
    assert np.mean(list(result.details["per_class"].values())) == pytest.approx(result.accuracy)
    assert f"{result.accuracy:.2f} %" in result.sentence()


def test_paper_defaults() -> None:
    from relatum.config.protocols import LinearSettings

    defaults = LinearSettings()
    assert (defaults.epochs, defaults.lr, defaults.batch_size) == (100, 1e-3, 128)


def test_knn_and_logistic(run: Path) -> None:
    knn = evaluate("knn", run, data="toy", seed=3)
    logistic = evaluate("linear", run, data="toy", settings={"solver": "logistic"}, tag="sklearn")
    assert knn.accuracy is not None
    assert knn.accuracy > 40
    assert knn.settings["k"] == 20
    assert knn.settings["seed"] == 3
    assert logistic.accuracy is not None
    assert logistic.accuracy > 60
    assert sorted(p.name for p in (run / "evaluations").iterdir()) == [
        "knn-toy-test.json",
        "linear-toy-test-sklearn.json",
    ]


def test_same_seed_same_result_other_seed_other(run: Path) -> None:
    def score(seed: int) -> dict[str, float]:
        evaluated = evaluate("linear", run, data="toy", epochs=5, seed=seed)
        return {k: v for k, v in evaluated.document().items() if k not in ("seconds",)}

    assert score(1) == score(1) != score(2)


def test_val_split_is_what_pretraining_held_out(world: World, make_run: Callable[..., Path]) -> None:
    from relatum.data import split_validation

    run = make_run(**{"data.val_fraction": 0.25, "seed": 7})
    rest, held = split_validation(world["toy", "train"], 0.25, 7)
    one = task(run, split="val")
    np.testing.assert_array_equal(one.test.images, held.images)
    np.testing.assert_array_equal(one.train.images, rest.images)
    result = evaluate("linear", run, data="toy", split="val", epochs=2)
    assert (result.n_train, result.n_test, result.split) == (150, 50, "val")
    assert result.settings["val_fraction"] == 0.25
    assert (run / "evaluations" / "linear-toy-val.json").exists()


def test_held_out_images_are_kept_out_of_probing_in_test_too(
    make_images: Images, world: World, make_run: Callable[..., Path]
) -> None:
    run = make_run(**{"data.val_fraction": 0.25})
    assert evaluate("linear", run, data="toy", epochs=1).n_train == 150
    whole = evaluate("linear", run, data="toy", epochs=1, settings={"val_fraction": "0"})
    assert whole.n_train == 200
    world["other", "train"], world["other", "test"] = make_images(40, name="other"), make_images(20, name="other")
    assert evaluate("linear", run, data="other", epochs=1).n_train == 40


def test_coarse_labels_keep_the_fine_labels_split(
    make_images: Images, world: World, make_run: Callable[..., Path]
) -> None:
    fine = replace(make_images(200), name="cifar100")
    assert fine.labels is not None
    world["cifar100", "train"] = fine
    world["cifar100-20", "train"] = replace(
        fine, name="cifar100-20", labels=np.random.default_rng(0).integers(0, 3, 200), classes=("a", "b", "c")
    )
    run = make_run(**{"data.name": "cifar100", "data.val_fraction": 0.2})
    one, other = task(run, "cifar100", "val"), task(run, "cifar100-20", "val")
    np.testing.assert_array_equal(one.test.images, other.test.images)
    assert other.test.classes == ("a", "b", "c")


def test_a_missing_val_split_is_reported_with_advice(run: Path) -> None:
    with pytest.raises(InputError, match=r"val_fraction=0\.2") as caught:
        evaluate("linear", run, data="toy", split="val")
    assert "--" not in str(caught.value)  # Python arguments, not flags
    assert evaluate("linear", run, data="toy", split="val", epochs=1, settings={"val_fraction": "0.1"}).n_test == 20


def test_a_datasets_own_val_split(make_images: Images, world: World, run: Path) -> None:
    world["toy", "val"] = make_images(30, seed=5, split="val")
    assert evaluate("knn", run, data="toy", split="val").n_test == 30


def test_limit_train(run: Path) -> None:
    assert evaluate("linear", run, data="toy", epochs=1, settings={"limit_train": 40}).n_train == 40


def test_pretraining_limit_does_not_limit_the_probe(world: World, make_run: Callable[..., Path]) -> None:
    assert evaluate("linear", make_run(**{"data.limit_train": 20}), data="toy", epochs=1).n_train == 200


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"protocol": "liner"}, "did you mean 'linear'"),
        ({"split": "train"}, "choose test or val"),
        ({"settings": {"epoch": 3}}, "did you mean 'epochs'"),
        ({"settings": {"lr": "fast"}}, "is not a number"),
        ({"protocol": "knn", "epochs": 3}, "no epochs"),
        ({"data": "untested"}, "no 'test' split"),
        ({"run": "nowhere"}, "no run at"),
    ],
)
def test_bad_input_is_reported(run: Path, arguments: dict[str, object], message: str) -> None:
    given = {"protocol": "linear", "run": run, "data": "toy", **arguments}
    with pytest.raises(InputError, match=message):
        evaluate(given.pop("protocol"), given.pop("run"), **given)  # type: ignore[arg-type]


def test_unlabelled_images_are_reported(world: World, run: Path) -> None:
    world["bare", "test"] = world["bare", "train"]
    for protocol in ("linear", "knn"):
        with pytest.raises(InputError, match=f"no labels, and {protocol} evaluation needs them"):
            evaluate(protocol, run, data="bare")


def test_a_backbone_that_changes_voids_the_result(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from relatum.evaluation import knn

    def meddle(task: Task) -> object:
        with torch.no_grad():
            next(task.backbone.parameters()).add_(1)

    monkeypatch.setattr(knn, "run", meddle)
    with pytest.raises(RelatumError, match="changed the backbone"):
        evaluate("knn", run, data="toy")
    assert not (run / "evaluations").exists()


def test_a_diverged_run_gets_no_score(run: Path) -> None:
    from relatum.runs.names import BACKBONE
    from relatum.runs.weights import load_weights, save_weights

    state, info = load_weights(run / BACKBONE)
    state["layer4.bn.bias"][:] = float("nan")
    save_weights(run / BACKBONE, state, info)
    with pytest.raises(InputError, match=r"NaN|diverged"):
        evaluate("linear", run, data="toy")


def test_features_are_computed_once(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from relatum import features

    evaluate("linear", run, data="toy", epochs=1)
    assert len(list((run / "features").iterdir())) == 2
    monkeypatch.setattr(features, "extract", lambda *a, **k: pytest.fail("computed again"))
    evaluate("knn", run, data="toy")


def test_folder_names_are_made_safe(make_images: Images, world: World, run: Path) -> None:
    for split in ("train", "test"):
        world["/home/me/My photos (new)!", split] = replace(make_images(40, split=split), name="My photos (new)!")
    result = evaluate("knn", run, data="/home/me/My photos (new)!")
    assert result.dataset == "My-photos-new"
    assert (run / "evaluations" / "knn-My-photos-new-test.json").exists()
    assert "/home" not in json.dumps(result.document())


def test_a_folder_with_a_long_name(make_images: Images, world: World, run: Path) -> None:
    """80 characters of three bytes: the name of a folder, but not with `retrieval-` and `-test.json` around it."""
    name = "写真" * 40
    for split in ("train", "test"):
        world[name, split] = replace(make_images(40, split=split), name=name)
    result = evaluate("retrieval", run, data=name, tag="t" * 200)
    assert result.path is not None
    assert result.path.exists()
    assert len(list((run / "features").iterdir())) == 1  # kept, although its name has the folder's


def test_save_classifier(run: Path, world: World) -> None:
    images = world["toy", "test"]
    assert images.labels is not None
    logits = np.eye(4)[images.labels]
    logits[:8] = np.roll(logits[:8], 1, 1)
    result = save_classifier(run, logits, images, split="test", n_train=200)
    assert result.accuracy == 90.0
    assert result.pretrain["status"] == "finished"
    assert Result.load(run / "evaluations" / "classifier-toy-test.json") == result
    with pytest.raises(RelatumError, match="non-finite"):
        save_classifier(run, logits * np.nan, images, split="test", n_train=200)
    with pytest.raises(RelatumError, match="one label and one row"):
        save_classifier(run, logits[:3], images, split="test", n_train=200)


def test_result_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no result"):
        Result.load(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("[1]")
    with pytest.raises(InputError, match="not a readable result"):
        Result.load(tmp_path / "bad.json")


def test_later_keys_are_ignored(run: Path) -> None:
    result = evaluate("knn", run, data="toy")
    path = run / "evaluations" / "knn-toy-test.json"
    path.write_text(json.dumps({**result.document(), "colour": "red"}))
    assert Result.load(path) == result


def test_status_of_the_run_is_recorded(run: Path) -> None:
    (run / "run.json").write_text('{"status": "interrupted", "steps": 12}')
    assert evaluate("knn", run, data="toy").pretrain["status"] == "interrupted"
    (run / "run.json").write_text("broken")
    assert "status" not in evaluate("knn", run, data="toy").pretrain


def test_every_protocol_is_registered() -> None:
    assert set(evaluation.PROTOCOLS) == {"linear", "knn", "finetune", "retrieval", "tsne"}
    for row in evaluation.PROTOCOLS.values():
        assert callable(registry.resolve(row.target))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        evaluation.nothing  # noqa: B018


def test_a_result_of_other_settings_does_not_vanish_without_a_word(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for epochs, change in ((3, ""), (3, ""), (2, "epochs 3 → 2")):
        result = evaluate("linear", run, data="toy", epochs=epochs)
        said = capsys.readouterr().err
        assert change in said
        assert bool(change) == ("tag=" in said)
    assert result.path == run / "evaluations" / "linear-toy-test.json"
    assert "path" not in json.loads(result.path.read_text())


@pytest.mark.parametrize("name", ["toy", "other"])
def test_images_are_seen_as_in_pretraining_and_the_result_says_how(
    make_images: Images, world: World, make_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A run at another side and with its own statistics: its dataset is evaluated so; another keeps its own."""
    asked: list[dict[str, object]] = []
    load = evaluation.task.sources.load

    def watch(data: str, split: str = "train", **options: object) -> ImageSet:
        asked.append({key: options.get(key) for key in ("side", "mean", "std")})
        return load(data, split, **options)

    monkeypatch.setattr(evaluation.task.sources, "load", watch)
    monkeypatch.setitem(registry.DATASETS, "toy", f"{__name__}:TOY")
    monkeypatch.setitem(registry.DATASETS, "other", f"{__name__}:OTHER")
    for split in ("train", "test"):
        world["other", split] = make_images(40, split=split, name="other")
    run = make_run(**{"data.side": 16, "data.mean": (0.1, 0.2, 0.3), "data.std": (0.4, 0.5, 0.6)})
    result = evaluate("knn", run, data=name)
    statistics = {"side": 16, "mean": (0.1, 0.2, 0.3), "std": (0.4, 0.5, 0.6)}
    assert asked == [statistics if name == "toy" else dict.fromkeys(statistics)] * 2
    assert {"side", "mean", "std"} <= result.settings.keys()
    assert {"lr", "optimizer", "schedule", "policy", "precision"} <= result.pretrain.keys()
