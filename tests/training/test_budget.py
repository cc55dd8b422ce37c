"""`--minutes`: the plan as a pure function, and a run that is planned, recorded and repeated."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

import relatum
from relatum.errors import InputError
from relatum.training.batches import BatchMaker
from relatum.training.budget import plan

COSTS = {2: 0.01, 4: 0.02, 8: 0.04, 16: 0.08, 32: 0.16}


@pytest.mark.parametrize(
    ("seconds", "views", "epochs"),
    [(1000, 32, 62), (100, 4, 50), (10_000, 32, 200), (10, 2, 10), (0.5, 2, 1)],
)
def test_a_larger_budget_gives_more_views_then_more_epochs(seconds: float, views: int, epochs: int) -> None:
    values = plan(seconds, 100, COSTS)
    assert (values["views.number"], values["train.epochs"]) == (views, epochs)
    assert values["limit"] == (seconds < 1)


def test_given_epochs_leave_only_the_views_to_choose() -> None:
    assert plan(100, 100, COSTS, epochs=10) == {"views.number": 16}


def test_the_chosen_values_are_recorded_and_run_again_with_the_same_bits(pictures: Path, tmp_path: Path) -> None:
    run = relatum.pretrain(pictures, minutes=0.02, out=tmp_path / "a", threads=1, quiet=True)
    recipe = run.recipe
    again = relatum.pretrain(recipe=run.path / "recipe.toml", out=tmp_path / "b", quiet=True)
    assert again.recipe.views.number == recipe.views.number
    assert again.recipe.train.epochs == recipe.train.epochs
    assert (run.path / "backbone.safetensors").read_bytes() == (again.path / "backbone.safetensors").read_bytes()


class Watched(nn.Module):
    """Records whether its training passes run in mixed precision."""

    mixed: ClassVar[list[bool]] = []

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 8)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.training and torch.is_grad_enabled():
            self.mixed.append(torch.is_autocast_enabled("cpu"))
        return self.layer(images.mean((2, 3)))


def test_steps_are_measured_in_the_precision_of_the_run(pictures: Path, tmp_path: Path) -> None:
    Watched.mixed.clear()
    options = {"minutes": 1e-6, "precision": "bf16-mixed", "compile": "off", "threads": 1}
    relatum.pretrain(pictures, backbone=Watched().eval(), out=tmp_path / "run", quiet=True, **options)  # type: ignore[arg-type]
    assert len(Watched.mixed) > 2 * 7
    assert all(Watched.mixed)


def test_images_in_memory_can_have_a_budget(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 255, (24, 32, 32, 3), dtype=np.uint8)
    run = relatum.pretrain(images, minutes=0.02, out=tmp_path / "a", threads=1, quiet=True)
    assert run.recipe.data.images == 24


def test_a_short_budget_takes_no_more_images_than_asked_for(pictures: Path, tmp_path: Path) -> None:
    options = {"limit_train": 10, "batch_size": 8, "threads": 1}
    run = relatum.pretrain(pictures, minutes=1e-6, out=tmp_path / "a", quiet=True, **options)  # type: ignore[arg-type]
    assert run.recipe.data.images == 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"minutes": 0}, "greater than 0"),
        ({"minutes": float("inf")}, "finite"),
        ({"minutes": 1, "views": 4, "epochs": 2}, "leave one"),
        ({"minutes": 1, "method": "deepcluster"}, "cannot time deepcluster"),
    ],
)
def test_impossible_budgets_are_refused(
    pictures: Path, tmp_path: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        relatum.pretrain(pictures, out=tmp_path / "a", quiet=True, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"minutes": -1}, {"minutes": 1, "views": 4, "epochs": 2}])
def test_impossible_budgets_are_refused_before_any_image_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, object]
) -> None:
    """Decoding a large folder of photographs takes minutes."""
    monkeypatch.setattr("relatum.training.resolve.resolve", lambda *_, **__: pytest.fail("the images are read first"))
    with pytest.raises(InputError, match="minutes"):
        relatum.pretrain("shapes", out=tmp_path / "a", quiet=True, **options)  # type: ignore[arg-type]


def test_what_is_decoded_ahead_is_given_up_after_each_measurement(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise up to 32 steps of a stream are decoded while the next number of views is measured."""
    made, closed, real = [], [], BatchMaker.__init__

    def init(self: BatchMaker, *arguments: object, **options: object) -> None:
        made.append(self)
        real(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(BatchMaker, "__init__", init)
    monkeypatch.setattr(BatchMaker, "close", lambda self: closed.append(self))
    relatum.pretrain(pictures, out=tmp_path / "run", minutes=0.02, compile="off", threads=1, quiet=True)
    assert len(made) == 3
    assert closed == made
