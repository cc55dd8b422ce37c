"""Reads a run folder for display, and notes which files are missing or unreadable. No torch here.

A run may be incomplete, written by another version, edited by hand or copied in part, so no file is trusted. The recipe
is read as plain tables: `Recipe` would refuse a key that it does not know.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from relatum import registry
from relatum.errors import InputError, RelatumError
from relatum.runs import artifacts, names
from relatum.runs.folder import RunFolder
from relatum.runs.metrics import read_rows, rows_digest
from relatum.runs.results import is_preliminary
from relatum.system.files import CHECKSUM, file_safe, is_intact
from relatum.system.text import counted
from relatum.system.untrusted import MAX_RECIPE, parse_toml, read_bounded, read_json_bounded

_MAX_COLUMNS = 200  # of metrics.jsonl; methods log about ten
# Where a result file records what the recipe calls by another name.
_RECORDED = {"data.name": "dataset", "backbone.name": "backbone", "views.number": "views", "train.epochs": "epochs"}


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(eq=False)
class RunRecord:
    """The readable contents of a run folder.

    Attributes:
        folder: the paths of its files.
        name: its name, unique among the runs that were read together.
        recipe: the recipe as tables; empty if there is none.
        recipe_text: the recipe as it was written.
        info: run.json.
        metrics: columns of metrics.jsonl, NaN where a line lacks the number.
        evaluations: result files, each with its file name under `file`.
        notes: what is missing or unreadable, as sentences.
    """

    folder: RunFolder
    name: str
    recipe: dict[str, Any] = field(default_factory=dict)
    recipe_text: str = ""
    info: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def setting(self, key: str, default: Any = None) -> Any:
        """A dotted key of the recipe, or else what an evaluation recorded about the pretraining."""
        value: Any = self.recipe
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        recorded = (e["pretrain"].get(_RECORDED.get(key, key)) for e in self.evaluations)
        return next((v for v in (value if value != "" else None, *recorded) if v is not None), default)

    @property
    def method(self) -> str:
        """The method's name, or an empty string."""
        return str(self.setting("method", ""))

    @property
    def backbone(self) -> str:
        """The backbone's name, or an empty string."""
        return str(self.setting("backbone.name", ""))

    @property
    def data_name(self) -> str:
        """The name of the training data: a dataset's, or a folder's without its path."""
        return re.split(r"[/\\]", str(self.setting("data.name", "")).rstrip("/\\"))[-1]

    @property
    def dataset(self) -> str:
        """The name of the training data as result files spell it."""
        return file_safe(self.data_name) if self.data_name else ""

    @property
    def unlabelled(self) -> bool:
        """Whether the training images are known to have no classes."""
        classes = self.info.get("classes")
        return isinstance(classes, list) and not classes

    @property
    def linear_command(self) -> str:
        """The command that evaluates the run on its training data, or an empty string if that needs labels it lacks."""
        if str(self.setting("data.name", "")) in registry.DATASETS or not self.data_name:
            return "relatum evaluate linear RUN --data DATA"
        # A folder may have no test split; holding a part out of the probe works with and without one.
        return "" if self.unlabelled else "relatum evaluate linear RUN --data DATA --split val --set val_fraction=0.2"

    def load_artifact(self, path: Path, *needed: str) -> artifacts.Arrays | None:
        """The arrays of an artifact, or None and a note if it is unreadable or lacks a needed array."""
        try:
            arrays = artifacts.load(path)
        except RelatumError as error:
            self.notes.append(f"{names.ARTIFACTS}/{error}")
            return None
        missing = [name for name in needed if name not in arrays]
        if missing:
            self.notes.append(f"{names.ARTIFACTS}/{path.name} has no {', '.join(missing)} and is not shown.")
            return None
        return arrays


def read_runs(folders: Sequence[Path]) -> list[RunRecord]:
    """Read run folders in the given order, each once, with unique names."""
    if not folders:
        raise InputError("no run to report on; name at least one run folder.")
    paths = list(dict.fromkeys(Path(folder).resolve() for folder in folders))
    return [read_run(path, name) for path, name in zip(paths, _unique_names(paths), strict=True)]


def read_run(folder: Path, name: str | None = None) -> RunRecord:
    """Read one run folder; only a folder that is missing or contains no run is an error."""
    if not folder.is_dir():
        raise InputError(f"no run at {folder}; give the folder that `relatum pretrain --out` created.")
    parts = (names.RECIPE, names.RECORD, names.METRICS, names.EVALUATIONS, names.ARTIFACTS)
    if not any((folder / part).exists() for part in parts):
        raise InputError(f"{folder} is not a run folder: it has no {', '.join(parts[:-1])} or {parts[-1]}.")
    run = RunRecord(RunFolder(folder), name or folder.name)
    if run.folder.record.exists():
        run.info = _read_json(run, run.folder.record) or {}
    else:
        run.notes.append(f"{names.RECORD} is missing: status, duration and machine are unknown.")
    _read_recipe(run)
    run.metrics = _read_metrics(run)
    run.evaluations = list(_read_evaluations(run))
    return run


def _unique_names(paths: Sequence[Path]) -> list[str]:
    """Folder names, with as many parent folders as it takes to tell them apart."""
    for depth in range(1, 8):
        tails = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(tails)) == len(tails):
            return tails
    return [str(path) for path in paths]


def _read_json(run: RunRecord, path: Path) -> dict[str, Any] | None:
    name = path.relative_to(run.folder.path).as_posix()
    try:
        document = read_json_bounded(path)
    except (OSError, ValueError) as error:
        run.notes.append(f"{name} cannot be read: {error}")
        return None
    if not isinstance(document, dict):
        run.notes.append(f"{name} is not a JSON object and is ignored.")
        return None
    if not is_intact(document):
        run.notes.append(f"{name} was changed after it was written: its checksum is wrong.")
    document.pop(CHECKSUM, None)
    return document


def _read_recipe(run: RunRecord) -> None:
    if not run.folder.exists():
        run.notes.append(f"{names.RECIPE} is missing: the training settings are unknown.")
        return
    try:
        run.recipe_text = read_bounded(run.folder.recipe, MAX_RECIPE).decode("utf-8", errors="replace")
        run.recipe = parse_toml(run.recipe_text)
        if run.folder.recipe_changed():
            run.notes.append(f"{names.RECIPE} was changed after the run started: its checksum is wrong.")
    except (OSError, ValueError) as error:
        run.notes.append(f"{names.RECIPE} cannot be read as TOML: {error}")


def _read_metrics(run: RunRecord) -> dict[str, NDArray[np.float64]]:
    rows: list[dict[str, Any]] = []
    bad = 0
    try:
        rows, bad = read_rows(run.folder.metrics)
    except (OSError, ValueError) as error:
        run.notes.append(f"{names.METRICS} cannot be read: {error}")
    if bad:
        run.notes.append(f"{counted(bad, 'line')} of {names.METRICS} could not be read.")
    elif run.info.get("metrics_digest") not in (None, "", rows_digest(rows)):
        run.notes.append(f"{names.METRICS} was changed after the run finished: its checksum is wrong.")
    rows.sort(key=lambda row: row["step"])
    keys = dict.fromkeys(key for row in rows for key, value in row.items() if is_number(value))
    if len(keys) > _MAX_COLUMNS:  # as many columns as rows would take the square of the file's size
        run.notes.append(f"{names.METRICS} has {len(keys):,} columns; the first {_MAX_COLUMNS} are shown.")
    return {
        key: np.array([row[key] if is_number(row.get(key)) else math.nan for row in rows])
        for key in list(keys)[:_MAX_COLUMNS]
    }


def _read_evaluations(run: RunRecord) -> Iterator[dict[str, Any]]:
    for path in run.folder.results():
        result = _read_json(run, path)
        if result is None:
            continue
        result["file"] = path.name
        result.setdefault("protocol", path.stem.partition("-")[0])
        for name in ("pretrain", "settings", "details"):
            if not isinstance(result.get(name), dict):
                result[name] = {}
        if is_preliminary(result):
            step = result["pretrain"].get("steps")
            run.notes.append(f"{path.name} is of a checkpoint of the unfinished run, at step {step}.")
        yield result
