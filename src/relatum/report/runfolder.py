"""Read a run folder forgivingly: take what there is, and keep a note of what is missing or cannot be read.

Nothing here trusts a file: a run may be half written, of another version, edited by hand, or copied in part. The recipe
is read as plain tables and not as a `Recipe`, which would refuse a key that it does not know.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relatum.errors import InputError, RelatumError
from relatum.report.markup import Html
from relatum.report.words import number
from relatum.runs import artifacts

Table = dict[str, Any]


@dataclass
class Run:
    """What a run folder holds.

    Attributes:
        folder: where it is.
        name: the folder's name, made unique among the runs of a page.
        recipe, recipe_text: the recipe as tables and as it was written; empty where there is none.
        info: run.json.
        metrics: columns of metrics.jsonl, NaN where a line has no such number.
        evaluations: result files, each with its file's name under `file`.
        notes: what is missing or could not be read, in words for people.
    """

    folder: Path
    name: str
    recipe: Table = field(default_factory=dict)
    recipe_text: str = ""
    info: Table = field(default_factory=dict)
    metrics: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    evaluations: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def setting(self, key: str, default: Any = None) -> Any:
        """A dotted key of the recipe; without one, what an evaluation recorded of the pretraining."""
        value: Any = self.recipe
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None and value != "":
            return value
        recorded = {
            "data.name": "dataset",
            "backbone.name": "backbone",
            "views.number": "views",
            "train.epochs": "epochs",
        }
        for evaluation in self.evaluations:
            found = evaluation["pretrain"].get(recorded.get(key, key))
            if found is not None:
                return found
        return default

    @property
    def data_name(self) -> str:
        """What was trained on, for people: a dataset's name, or a folder's without the path to it."""
        return re.split(r"[/\\]", str(self.setting("data.name", "")).rstrip("/\\"))[-1]

    @property
    def dataset(self) -> str:
        """What was trained on as result files name it."""
        return re.sub(r"[^\w.]+", "-", self.data_name).strip("-.")

    @property
    def unlabelled(self) -> bool:
        """Whether it is known that the training images have no classes."""
        classes = self.info.get("classes")
        return isinstance(classes, list) and not classes

    def artifact_files(self, protocol: str) -> list[Path]:
        """Artifacts of a protocol, in the order of their names: `views.npz`, `tsne-*.npz`."""
        folder = self.folder / "artifacts"
        found = {*folder.glob(f"{protocol}.npz"), *folder.glob(f"{protocol}-*.npz")}
        return sorted(path for path in found if not path.stem.endswith("-matrices"))

    def load(self, path: Path, *needed: str) -> artifacts.Arrays | None:
        """An artifact's arrays, or None and a note where it cannot be used."""
        try:
            arrays = artifacts.load(path)
        except RelatumError as error:
            self.notes.append(f"artifacts/{error}")
            return None
        missing = [name for name in needed if name not in arrays]
        if missing:
            self.notes.append(f"artifacts/{path.name} has no {', '.join(missing)}: it is not shown.")
            return None
        return arrays

    def show(self, path: Path, needed: tuple[str, ...], render: Callable[[artifacts.Arrays], Html]) -> Html | None:
        """What `render` makes of an artifact, or None and a note where the arrays are not what they should be."""
        arrays = self.load(path, *needed)
        if arrays is None:
            return None
        try:
            return render(arrays)
        except (ValueError, TypeError, IndexError, KeyError, AttributeError, OverflowError):
            self.notes.append(f"artifacts/{path.name} is not what it should be inside: it is not shown.")
            return None


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """Read run folders, in the order given, with names that tell them apart."""
    if not folders:
        raise InputError("no run to report on; name at least one run folder.")
    paths = list(dict.fromkeys(Path(folder).resolve() for folder in folders))
    return [read_run(path, name) for path, name in zip(paths, _names(paths), strict=True)]


def read_run(folder: Path, name: str | None = None) -> Run:
    """Read one run folder; anything but a missing or foreign folder becomes a note."""
    if not folder.is_dir():
        raise InputError(f"no run at {folder}; name the folder that `relatum pretrain --out` wrote.")
    if not any(
        (folder / part).exists() for part in ("run.json", "recipe.toml", "metrics.jsonl", "evaluations", "artifacts")
    ):
        raise InputError(
            f"{folder} is not a run folder: it has no recipe.toml, run.json, metrics.jsonl or evaluations."
        )
    run = Run(folder, name or folder.name)
    run.info = _read_info(run)
    _read_recipe(run)
    run.metrics = _read_metrics(run)
    run.evaluations = list(_read_evaluations(run))
    return run


def _names(paths: Sequence[Path]) -> list[str]:
    """Folder names; where two are the same, with as much of the path before them as it takes."""
    depth = 1
    while depth < 8:
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            return names
        depth += 1
    return [str(path) for path in paths]


def _read_info(run: Run) -> Table:
    path = run.folder / "run.json"
    if not path.exists():
        run.notes.append("There is no run.json: status, duration and machine are not known.")
        return {}
    found = _json_object(run, path)
    return found or {}


def _json_object(run: Run, path: Path) -> Table | None:
    where = path.relative_to(run.folder).as_posix()
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        run.notes.append(f"{where} cannot be read: {error}")
        return None
    if not isinstance(found, dict):
        run.notes.append(f"{where} is not a JSON object: it is left out.")
        return None
    return found


def _read_recipe(run: Run) -> None:
    path = run.folder / "recipe.toml"
    if not path.exists():
        run.notes.append("There is no recipe.toml: the settings of the training are not known.")
        return
    try:
        run.recipe_text = path.read_text("utf-8", errors="replace")
        run.recipe = tomllib.loads(run.recipe_text)
    except (OSError, ValueError) as error:
        run.notes.append(f"recipe.toml cannot be read as TOML: {error}")


def _read_metrics(run: Run) -> dict[str, NDArray[np.float64]]:
    path = run.folder / "metrics.jsonl"
    if not path.exists():
        return {}
    rows: list[Table] = []
    bad = 0
    with path.open("rb") as file:
        for line in file:
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if isinstance(row, dict) and number(row.get("step")) and row["step"] >= 0:
                rows.append(row)
            else:
                bad += 1
    if bad:
        lines = "One line" if bad == 1 else f"{bad} lines"
        run.notes.append(f"{lines} of metrics.jsonl could not be read and {'is' if bad == 1 else 'are'} left out.")
    rows.sort(key=lambda row: row["step"])
    names = dict.fromkeys(name for row in rows for name, value in row.items() if number(value))
    return {name: np.array([_float(row.get(name)) for row in rows]) for name in names}


def _float(value: Any) -> float:
    return float(value) if number(value) else math.nan


def _read_evaluations(run: Run) -> Iterable[Table]:
    for path in sorted((run.folder / "evaluations").glob("*.json")):
        found = _json_object(run, path)
        if found is None:
            continue
        found["file"] = path.name
        found.setdefault("protocol", path.stem.partition("-")[0])
        for name in ("pretrain", "settings", "details"):
            if not isinstance(found.get(name), dict):
                found[name] = {}
        yield found
