"""Seconds per training step, measured side by side on idle cores: `speeds.json` in a ledger folder.

The seconds of runs on different machines, or beside other work, cannot be compared with each other. Their number of
steps times the seconds of a step that were measured on one machine can. No torch here.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, floor
from pathlib import Path
from typing import Any

from relatum.runs.reading import is_number
from relatum.system.files import read_json

NAME = "speeds.json"
# The recipe keys that decide how long a step takes on a given machine.
KEYS = ("method", "preset", "data.name", "backbone.name", "views.number", "views.small_number", "train.batch_size")


def _value(recipe: Mapping[str, Any], key: str) -> Any:
    """The value of a dotted key, or None."""
    value: Any = recipe
    for name in key.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def condition(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The values of `KEYS` in a recipe; older recipes have no small views."""
    values = {key: _value(recipe, key) for key in KEYS}
    return {**values, "views.small_number": values["views.small_number"] or 0}


def seconds_per_step(folder: str | Path, recipe: Mapping[str, Any]) -> float | None:
    """The measured seconds of a training step, or None if this recipe was not measured."""
    rows = (read_json(Path(folder) / NAME) or {}).get("recipes")
    wanted = condition(recipe)
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and row.get("condition") == wanted and is_number(row.get("seconds_per_step")):
            return float(row["seconds_per_step"])
    return None


def training_seconds(folder: str | Path, recipe: Mapping[str, Any]) -> float | None:
    """The seconds of a whole training of this recipe, or None if it was not measured."""
    seconds = seconds_per_step(folder, recipe)
    epochs, size, images = (_value(recipe, key) for key in ("train.epochs", "train.batch_size", "data.images"))
    if seconds is None or not (is_number(epochs) and is_number(size) and is_number(images) and size > 0):
        return None
    steps = floor(images / size) if _value(recipe, "train.drop_last") else ceil(images / size)
    return seconds * epochs * steps
