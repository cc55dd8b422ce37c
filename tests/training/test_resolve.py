from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from relatum import config
from relatum.errors import InputError
from relatum.training import resolve


def of(pictures: Path | str, **values: Any) -> resolve.Resolved:
    flags = {"data.name": str(pictures), **{key.replace("__", "."): value for key, value in values.items()}}
    return resolve.resolve(config.draft(flags=flags))


def test_everything_automatic_is_resolved(pictures: Path) -> None:
    recipe = of(pictures).recipe
    run = recipe.run
    assert "auto" not in (run.device, run.compile, run.kernels, run.prefetch)
    assert run.threads is not None
    assert recipe.data.side == 32
    assert recipe.data.pad == 4
    assert recipe.data.images == 36
    assert len(recipe.data.fingerprint) == 32


def test_a_resume_refuses_a_precision_that_a_new_run_refuses(pictures: Path, tmp_path: Path) -> None:
    draft = config.draft(flags={"run.precision": "16-mixed"})
    with pytest.raises(InputError, match="needs a GPU"):
        resolve.resume(tmp_path, of(pictures, run__device="cpu").recipe, draft)


def test_a_folder_gets_defaults_for_this_machine_and_says_which(
    pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved = of(pictures)
    folder = {"preset": "fast", "backbone.name": "conv4", "views.number": 8, "train.epochs": 200}
    assert resolved.folder_defaults == folder
    assert (resolved.recipe.preset, resolved.recipe.train.schedule, resolved.recipe.train.lr) == (
        "fast",
        "cosine",
        4e-3,
    )
    assert resolved.recipe.views.number == 8
    assert resolved.recipe.train.epochs == 200  # few images: many passes, up to the paper's
    partly_set = of(pictures, views__number=4, train__epochs=3)
    assert (partly_set.recipe.views.number, partly_set.recipe.train.epochs) == (4, 3)
    assert partly_set.folder_defaults == {"preset": "fast", "backbone.name": "conv4"}
    paper = of(pictures, preset="paper")
    assert (paper.recipe.train.schedule, paper.recipe.train.lr, "preset" in paper.folder_defaults) == (
        "constant",
        1e-3,
        False,
    )
    assert of("shapes").folder_defaults == {}
    simclr = of(pictures, method="simclr").recipe
    assert (simclr.views.number, simclr.preset) == (2, "fast")
    rotation = of(pictures, method="rotation").recipe
    assert rotation.preset == "paper"  # the only preset that it has, with official
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    gpu = of(pictures).recipe
    assert (gpu.backbone.name, gpu.views.number, gpu.run.device, gpu.run.prefetch) == ("resnet32", 16, "cuda", "on")
    assert (gpu.preset, gpu.train.lr) == ("fast", 1e-3)  # the higher rate was tuned for Conv-4


def test_compile_pays_for_long_runs_with_a_compiler(pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve, "has_compiler", lambda: True)
    long = {"backbone__name": "resnet8", "train__epochs": 100_000}
    assert of(pictures, **long).recipe.run.compile == "on"
    assert of(pictures, backbone__name="resnet8", train__epochs=1).recipe.run.compile == "off"
    assert of(pictures, train__epochs=100_000).recipe.run.compile == "off"  # Conv-4 has kernels of its own
    assert of(pictures, train__epochs=100_000, run__precision="bf16-mixed").recipe.run.compile == "on"
    monkeypatch.setattr(resolve, "has_compiler", lambda: False)
    assert of(pictures, **long).recipe.run.compile == "off"
    assert of(pictures, run__compile="on").recipe.run.compile == "on"  # the user's word counts


def test_without_numba_torch_serves(pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve, "numba_available", lambda: False)
    assert of(pictures).recipe.run.kernels == "torch"


def test_unavailable_devices_are_rejected(pictures: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    with pytest.raises(InputError, match="cuda is not available here; available: cpu"):
        of(pictures, run__device="cuda")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"method": "rotation", "views__number": 1}, "views=4"),
        ({"method": "rotation", "views__number": 3}, "views=4"),
        ({"method": "rotation", "views__number": 6}, "rotation-study"),
        ({"method": "rotation", "views__policy": "relational"}, "policy 'relational'"),
        ({"method": "simclr", "views__number": 1}, "simclr needs at least 2 views"),
        ({"method": "relational", "views__number": 1}, "relational needs at least 2 views"),
        ({"method": "simclr", "data__labels": 0.5}, "simclr cannot use labels; these can: relational, supervised"),
        ({"method": "random", "data__labels": 0.5}, "random cannot use labels"),
        ({"method": "supervised", "data__labels": 0}, "labels=0: supervised needs labels"),
        ({"objective__avoid_collisions": True}, "avoid_collisions=true needs labels"),
    ],
)
def test_what_a_method_cannot_learn_from_is_refused_before_an_image_is_read(
    values: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("no data is loaded for a run that cannot be")

    monkeypatch.setattr(resolve.data, "load", never)
    with pytest.raises(InputError, match=message):
        of("shapes", **values)


@pytest.mark.parametrize(("policy", "views"), [("rotation", 4), ("rotation", 8), ("rotation-study", 3)])
def test_every_turn_comes_equally_often(policy: str, views: int, pictures: Path) -> None:
    values = {"views__policy": policy, "views__number": views, "train__epochs": 1}
    assert of(pictures, method="rotation", **values).recipe.views.number == views


def test_a_run_that_learns_nothing_may_have_any_views(pictures: Path) -> None:
    assert of(pictures, method="rotation", views__number=1, train__epochs=0).recipe.train.epochs == 0


def test_labels_are_invisible_unless_asked_for(pictures: Path) -> None:
    assert of(pictures).labels is None
    supervised = of(pictures, method="supervised")
    assert supervised.labels is not None
    assert (supervised.labels >= 0).all()
    some = of(pictures, data__labels=0.25).labels
    assert some is not None
    seen = some >= 0
    np.testing.assert_array_equal(np.bincount(some[seen]), [3, 3, 3])  # class-balanced
    np.testing.assert_array_equal(some, of(pictures, data__labels=0.25).labels)  # fixed by the seed


def test_a_recipe_file_says_no_labels_by_default_and_supervised_sees_them_all(pictures: Path, tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    file.write_text(of(pictures, method="supervised", train__epochs=1).recipe.to_toml())
    assert "labels = 0.0" in file.read_text()
    again = resolve.resolve(config.draft(recipe_file=file))
    assert again.labels is not None
    assert (again.labels >= 0).all()
    with pytest.raises(InputError, match="labels=0"):
        resolve.resolve(config.draft(recipe_file=file, sets=["data.labels=0"]))


def test_epochs_of_random_weights_are_ignored_with_a_note() -> None:
    resolved = of("shapes", method="random", train__epochs=5)
    assert resolved.recipe.train.epochs == 0
    assert resolved.warnings == ("--epochs 5 is ignored: random weights are not trained.",)
    assert of("shapes", method="random").warnings == of("shapes", method="random", train__epochs=0).warnings == ()
    assert of("shapes", train__epochs=5).warnings == ()


def test_supervised_needs_labels(tmp_path: Path, pictures: Path) -> None:
    from shutil import copyfile

    for path in (pictures / "down").iterdir():
        copyfile(path, tmp_path / path.name)
    with pytest.raises(InputError, match="supervised training needs labels"):
        of(tmp_path, method="supervised")
    for path in list(tmp_path.iterdir())[1:]:
        path.unlink()
    with pytest.raises(InputError, match="at least two"):
        of(tmp_path)


def test_parts_are_held_out_and_limited(pictures: Path) -> None:
    resolved = of(pictures, data__val_fraction=0.25, data__limit_train=9)
    assert resolved.validation is not None
    assert (len(resolved.images), len(resolved.validation)) == (9, 9)
    assert resolved.images.files is not None
    assert resolved.validation.files is not None
    assert not set(resolved.images.files) & set(resolved.validation.files)
