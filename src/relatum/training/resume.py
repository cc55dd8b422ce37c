"""Reads the recipe and the newest good checkpoint of a run to resume, which must agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relatum import config, registry
from relatum.config import Recipe
from relatum.errors import InputError
from relatum.runs import checkpoint, names
from relatum.runs.folder import RunFolder
from relatum.system.progress import Display
from relatum.system.text import counted
from relatum.system.untrusted import parse_toml

# Keys that a resume may change without changing a bit of the result.
FREE_ON_RESUME = ("log.", "checkpoint.", "version", "run.prefetch", "data.cache_gb")


@dataclass(frozen=True)
class Start:
    """The checkpoint that a run continues from."""

    path: Path
    state: checkpoint.State

    @property
    def step(self) -> int:
        """The steps that were done."""
        return int(self.state["step"])


def open_run(folder: RunFolder, display: Display) -> tuple[Recipe, Start | None]:
    """The recipe that a run started with and its newest good checkpoint, or None if there is none yet.

    A lost or damaged recipe is taken from the checkpoint, with a warning; one that was cut off may still be valid TOML.

    Raises:
        InputError: the recipe was changed since the run started, or every checkpoint is damaged.
    """
    if folder.record_damaged():
        display.warn(f"{folder.record} is damaged: status and times recorded before are lost.")
    newest = checkpoint.newest(folder.path, warn=display.warn)
    if newest is None:
        if folder.recipe_changed():
            raise InputError(
                f"{folder.recipe} was changed after the run wrote it, and there is no checkpoint yet: "
                "start again with --overwrite, or choose another --out."
            )
        return folder.read_recipe(), None
    start = Start(*newest)
    kept = _recipe_of(start)
    try:
        recipe = folder.read_recipe()
    except InputError as error:
        display.warn(f"{str(error).splitlines()[0]} The recipe in {start.path} is used.")
        return kept, start
    values, stored = config.flatten(recipe.tables()), config.flatten(kept.tables())
    if not folder.recipe_changed():
        _compare({**dict.fromkeys(stored), **values}, stored, start, display, used=names.RECIPE)
        return recipe, start
    written = config.flatten(config.read_toml(folder.recipe)).keys()  # a file that was cut off lacks the rest
    values = {key: value for key, value in values.items() if key in written}
    if lost := len(stored.keys() - written):
        display.warn(f"{folder.recipe} lacks {counted(lost, 'setting')}; {start.path.name} has them.")
    _compare(values, stored, start, display, used=start.path.name)
    return kept, start


def _recipe_of(start: Start) -> Recipe:
    try:
        return Recipe.from_values(config.flatten(parse_toml(start.state["recipe"])), finished=True)
    except (InputError, TypeError, ValueError) as error:
        raise InputError(f"the recipe in {start.path} cannot be used: {error}") from None


def is_moved_folder(key: str, now: Any, before: Any) -> bool:
    """Whether the training folder has another path; the fingerprint decides whether it has the same images."""
    return key == "data.name" and not {now, before} & registry.DATASETS.keys()


def _compare(
    values: Mapping[str, Any], stored: Mapping[str, Any], start: Start, display: Display, *, used: str
) -> None:
    """Refuse values that would give other bits than those stored in the checkpoint; other differences are warnings."""
    for key in sorted(values):
        now, before = values[key], stored.get(key)
        if now == before or key == "version":
            continue
        difference = f"{key} is {now!r} in {names.RECIPE} and {before!r} in {start.path.name}"
        if not is_moved_folder(key, now, before) and not key.startswith((*FREE_ON_RESUME, "run.")):
            raise InputError(
                f"{difference}: the recipe was changed after the run started. "
                f"Restore the value, or start a new run with --recipe {start.path.parent.parent / names.RECIPE}."
            )
        display.warn(f"{difference}; the value in {used} is used.")
