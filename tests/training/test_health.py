"""A run that learns nothing says so while it trains; measuring it changes no bit."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import relatum
from relatum import backbones, data, features
from relatum.training.batches import BatchMaker
from relatum.training.health import Health, spread
from relatum.training.messages import without_content


def test_a_single_image_says_nothing_about_the_spread() -> None:
    numbers = spread(nn.Flatten(), torch.randn(1, 3, 1, 1))
    assert numbers == {}
    warnings: list[str] = []
    Health(3, warnings.append).check({"step": 1, "epoch": 1, "loss": 1.0, **numbers}, last=True)
    assert not warnings


def test_the_spread_of_known_representations() -> None:
    z = torch.eye(4)[torch.arange(64) % 4]  # four corners: three dimensions, equally filled
    numbers = spread(nn.Flatten(), z[:, :, None, None])
    assert numbers["effective_dimension"] == pytest.approx(3.0, abs=1e-6)
    assert numbers["feature_std"] == pytest.approx((3 / 16) ** 0.5, abs=1e-6)
    line = torch.stack([torch.ones(50), torch.linspace(0, 1, 50)], 1)[:, :, None, None]
    assert 1 <= spread(nn.Flatten(), line)["effective_dimension"] < 1.2
    for constant in (torch.ones(20, 3, 1, 1), torch.zeros(20, 3, 1, 1)):
        assert spread(nn.Flatten(), constant) == {"feature_std": 0.0, "effective_dimension": 0.0}
    assert np.isnan(spread(nn.Flatten(), torch.full((4, 3, 1, 1), torch.nan))["feature_std"])


def test_measuring_changes_nothing() -> None:
    backbone = backbones.build("conv4", seed=1).train()
    before, state = features.state_hash(backbone), torch.random.get_rng_state()
    spread(backbone, torch.randn(16, 3, 32, 32, generator=torch.Generator().manual_seed(0)))
    assert features.state_hash(backbone) == before
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(module.training for module in backbone.modules())


def test_random_weights_on_noise_have_not_collapsed() -> None:
    warnings: list[str] = []
    images = torch.randn(64, 3, 32, 32, generator=torch.Generator().manual_seed(0)) * 0.1
    numbers = spread(backbones.build("conv4", seed=1), images)
    Health(64, warnings.append).check({"step": 1, "loss": 0.1, **numbers})
    assert warnings == []


def test_warnings_come_once_and_at_the_end() -> None:
    warnings: list[str] = []
    health = Health(64, warnings.append)

    def row(step: int, accuracy: float, std: float) -> dict[str, Any]:
        pairs = {"positive_accuracy": 1.0, "negative_accuracy": 2 * accuracy - 1}
        return {"step": step, "loss": 0.1, "feature_std": std, "effective_dimension": 2.0, **pairs}

    for step in range(10, 500, 10):
        health.check(row(step, 0.505, 0.05))
    assert warnings == []
    for step in range(500, 600, 10):
        health.check(row(step, 0.505, 0.05))
    assert len(warnings) == 1
    assert "at chance" in warnings[0]
    health.check(row(600, 0.7, 1e-6))
    health.check(row(610, 0.7, 1e-6))
    assert len(warnings) == 2
    assert "collapsed" in warnings[1]
    health.check(row(620, 0.7, 1e-6), last=True)
    assert len(warnings) == 3


@pytest.mark.parametrize(("dimension", "images", "said"), [(1.64, 128, True), (1.64, 8, False), (3.2, 128, False)])
def test_few_dimensions_are_warned_about_if_there_are_enough_images(dimension: float, images: int, said: bool) -> None:
    warnings: list[str] = []
    row = {"step": 1, "loss": 0.1, "feature_std": 0.03, "effective_dimension": dimension}
    Health(64, warnings.append).check(row, images=images)
    assert [("few dimensions: their effective dimension is 1.6 of 64" in text) for text in warnings] == [True] * said


def test_a_loss_that_stays_at_chance_is_warned_about_once() -> None:
    warnings: list[str] = []
    health = Health(64, warnings.append, chance_loss=math.log(128))
    health.check({"step": 10, "loss": 4.70})
    for step in range(20, 500, 10):
        health.check({"step": step, "loss": 4.854})
    assert not warnings
    for step in range(500, 600, 10):
        health.check({"step": step, "loss": 4.852})
    assert len(warnings) == 1
    assert "since step 10: the method has collapsed" in warnings[0]


@pytest.mark.parametrize("case", ["rate", "images"])
def test_a_run_that_collapses_warns(
    case: str, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A learning rate of a million and a folder of black images end with a warning, not only with `done`."""
    flags: dict[str, Any] = {
        "views": 2,
        "batch_size": 8,
        "epochs": 1,
        "compile": "off",
        "threads": 1,
        "preset": "paper",
    }
    source = pictures
    if case == "rate":
        flags["set"] = {"train.lr": 1e6}
    else:
        source = tmp_path / "black"
        source.mkdir()
        for i in range(16):
            Image.new("RGB", (32, 32)).save(source / f"{i}.png")
    run = relatum.pretrain(source, out=tmp_path / "run", **flags)
    assert {"rate": "the loss has grown", "images": "have collapsed: all images"}[case] in capsys.readouterr().err
    last = json.loads((run.path / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["feature_std"] < 0.01
    assert last["effective_dimension"] < 2


def test_a_short_last_mini_batch_does_not_hide_a_collapse(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """36 pictures in mini-batches of 32 and 4: four images say nothing about dimensions."""
    sets = {"train.lr": 1.0}
    flags: dict[str, Any] = {"epochs": 3, "compile": "off", "threads": 1, "preset": "paper", "set": sets}
    run = relatum.pretrain(pictures, out=tmp_path / "run", method="byol", views=2, batch_size=32, **flags)
    last = json.loads((run.path / "metrics.jsonl").read_text().splitlines()[-1])
    maker = BatchMaker(data.load(pictures, side=32), run.recipe)
    assert maker.make(0).views.shape[1] == 32
    expected = spread(relatum.load_backbone(run.path), maker.make(0).views[0])
    assert {name: last[name] for name in expected} == pytest.approx(expected, rel=1e-5)
    assert "collapsed to few dimensions" in capsys.readouterr().err


def test_images_without_content_are_noticed_before_training() -> None:
    """Their views differ in colour, so that the spread of representations does not tell."""
    constant = np.full((300, 4, 4, 3), 9, np.uint8)
    assert "are the same" in without_content(constant)[0]
    flat = np.broadcast_to(np.arange(250, dtype=np.uint8)[:, None, None, None], (250, 4, 4, 3))
    assert "one colour" in without_content(flat)[0]
    assert without_content(np.random.default_rng(0).integers(0, 255, (5, 4, 4, 3), np.uint8)) == []


@pytest.mark.parametrize("chance", [None, 2.0])
def test_a_resumed_run_knows_nothing_of_the_steps_before(chance: float | None) -> None:
    """The first rows after a resume were said to be at chance "since step 0", whatever had been learned before."""
    warnings: list[str] = []
    health = Health(64, warnings.append, chance_loss=chance)
    row = {"loss": 2.0, "positive_accuracy": 0.5, "negative_accuracy": 0.5}
    for step in (10_010, 10_500):
        health.check({"step": step, **row})
    assert not warnings
    health.check({"step": 10_510, **row})
    assert warnings
    assert all("since step 10,009" in text for text in warnings)
