"""Measured seconds per step: found by the recipe's conditions, and never by guessing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from relatum import config
from relatum.runs import speeds
from relatum.system.files import write_json


def recipe(**values: Any) -> dict[str, Any]:
    """The tables of a complete recipe for CIFAR-10."""
    keys = {"method": "swav", "data.name": "cifar10", "backbone.name": "conv4", "data.images": 1000}
    return config.Draft({**keys, **values}).recipe().tables()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [{"condition": speeds.condition(recipe()), "seconds_per_step": 0.25}]
    write_json(tmp_path / "speeds.json", {"recipes": rows})
    return tmp_path


def test_the_time_of_a_training_is_its_steps_times_the_measured_seconds(folder: Path) -> None:
    tables = recipe(**{"train.epochs": 3})
    steps = 3 * 8  # 1,000 images in mini-batches of 128: seven full ones and a short one
    assert speeds.training_seconds(folder, tables) == 0.25 * steps


@pytest.mark.parametrize(
    "values",
    [
        {"method": "dino"},
        {"views.number": 4},
        {"views.small_number": 6},
        {"train.batch_size": 64},
        {"backbone.name": "resnet8"},
        {"data.name": "cifar100"},
        {"preset": "official"},
    ],
)
def test_another_recipe_has_no_speed(folder: Path, values: dict[str, Any]) -> None:
    assert speeds.training_seconds(folder, recipe(**values)) is None


def test_a_recipe_without_small_views_is_one_with_none(folder: Path) -> None:
    tables = recipe()
    del tables["views"]["small_number"]  # recipes of older versions
    assert speeds.seconds_per_step(folder, tables) == 0.25


@pytest.mark.parametrize(
    "document", [{}, {"recipes": 3}, {"recipes": [3, {}, {"condition": speeds.condition(recipe())}]}]
)
def test_an_unusable_file_has_no_speed(tmp_path: Path, document: dict[str, Any]) -> None:
    write_json(tmp_path / "speeds.json", document)
    assert speeds.seconds_per_step(tmp_path, recipe()) is None


def test_an_unusable_recipe_has_no_time(folder: Path) -> None:
    for values in ({"data": {"images": None}}, {"train": {"batch_size": 0}}, {"data": 3, "train": None}):
        tables = recipe()
        for name, table in values.items():
            tables[name] = {**tables[name], **table} if isinstance(table, dict) else table
        assert speeds.training_seconds(folder, tables) is None
