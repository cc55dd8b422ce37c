"""RUN/metrics.jsonl: one JSON object per logged step. A resumed run has no gap and no repeated step. No torch here."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relatum.errors import InputError, missing_package, unknown
from relatum.runs import names
from relatum.system.files import write_bytes, write_error
from relatum.system.untrusted import MAX_LOG, MAX_RECIPE, parse_json, parse_toml, read_bounded

_TIMED = "views_per_second"  # depends on the machine's load; everything else is the same in every repetition


class MetricsWriter:
    """Appends to metrics.jsonl. Opening it removes all lines after a step.

    Args:
        path: the file.
        step: the step that the run has reached.
        tensorboard: also write TensorBoard files beside it.
        wandb: also log to Weights & Biases; the run's name there is the folder's, and a resume continues it.

    Attributes:
        damaged: the number of lines up to that step that could not be read; they are removed.
    """

    def __init__(self, path: Path, step: int, *, tensorboard: bool = False, wandb: bool = False) -> None:
        self._wandb = _wandb(path.parent) if wandb else None
        self._board = _board(path.parent / names.TENSORBOARD, step) if tensorboard else None
        self._path = path
        kept: list[bytes] = []
        self._digest, self.damaged, unreadable = hashlib.sha256(), 0, 0
        try:
            lines = _lines(path)
        except (OSError, ValueError) as error:
            raise InputError(
                f"{path} cannot be read: {error}. Move it away; the weights do not depend on it."
            ) from None
        for line in lines:
            row = parse_row(line)
            if row is None:
                unreadable += 1
            elif row["step"] <= step:
                kept.append(line + b"\n")
                self._digest.update(_reproducible(row))
                self.damaged = unreadable  # a killed process may have cut the last line, after the checkpoint's step
        write_bytes(path, *kept)
        self._file = path.open("ab", buffering=0)

    @property
    def digest(self) -> str:
        """A hash of all lines without their timings. A checkpoint keeps it, and a resume compares."""
        return self._digest.hexdigest()

    def write(self, row: Mapping[str, Any]) -> None:
        """Append one line."""
        line = json.dumps(row, allow_nan=True).encode() + b"\n"
        try:
            written = 0
            while written < len(line):  # a disk that is nearly full takes a part, and then gives the reason
                written += self._file.write(line[written:])
        except OSError as error:
            raise write_error(self._path, error) from error
        self._digest.update(_reproducible(row))
        if self._board is not None:
            for name in row.keys() - {"step"}:
                self._board.add_scalar(name, row[name], row["step"])
        if self._wandb is not None:
            self._wandb.log({name: value for name, value in row.items() if name != "step"}, step=row["step"])

    def sync(self) -> None:
        """Force the lines to the disk. Called before a checkpoint, so that no checkpoint is ahead of its metrics."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise write_error(self._path, error) from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        if self._board is not None:
            self._board.close()
        if self._wandb is not None:
            self._wandb.finish()


def _wandb(folder: Path) -> Any:
    """A run of Weights & Biases, with the recipe as its configuration."""
    try:
        import wandb
    except ImportError:
        raise missing_package("log.wandb", "wandb") from None
    recipe = folder / names.RECIPE
    settings = parse_toml(read_bounded(recipe, MAX_RECIPE).decode("utf-8")) if recipe.exists() else {}
    identity = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]
    return wandb.init(
        project="relatum", name=folder.name, id=identity, dir=str(folder), config=settings, resume="allow", reinit=True
    )


def _board(path: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise missing_package("log.tensorboard", "tensorboard") from None
    return SummaryWriter(path, purge_step=step + 1)


class MetricsTable(list[dict[str, Any]]):
    """The rows of a metrics file as a table: a list of dicts, with conversion to NumPy and pandas."""

    @property
    def columns(self) -> list[str]:
        """The names of all columns, in the order in which they first occur."""
        return list(dict.fromkeys(name for row in self for name in row))

    def column(self, name: str) -> NDArray[np.float64]:
        """The values of a column; NaN in rows without it."""
        if name not in self.columns:
            raise unknown("column", name, self.columns)
        return np.array([row.get(name, np.nan) for row in self], np.float64)

    def to_numpy(self) -> NDArray[np.void]:
        """A structured array with one field per column, float64; NaN where a row has no value."""
        table = np.empty(len(self), [(name, np.float64) for name in self.columns])
        for name in self.columns:
            table[name] = self.column(name)
        return table

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame`; needs pandas."""
        try:
            import pandas
        except ImportError:
            raise InputError("to_pandas needs pandas: pip install pandas, or use `to_numpy`.") from None
        return pandas.DataFrame(list(self), columns=self.columns)


def parse_row(line: bytes) -> dict[str, Any] | None:
    """A line of metrics.jsonl, or None if it is damaged: no JSON object, or without the number of a step."""
    with contextlib.suppress(ValueError):
        row = parse_json(line)
        if isinstance(row, dict) and type(row.get("step")) in (int, float) and 0 <= row["step"] < math.inf:
            return row
    return None


def _lines(path: Path) -> list[bytes]:
    """The lines of the file; none if it is missing. An OSError or a ValueError says why it cannot be read."""
    return read_bounded(path, MAX_LOG).splitlines() if path.exists() else []


def read_rows(path: Path) -> tuple[list[dict[str, Any]], int]:
    """All rows that can be read, and how many lines cannot. Raises as `_lines` does."""
    rows = [parse_row(line) for line in _lines(path) if line.strip()]
    good = [row for row in rows if row is not None]
    return good, len(rows) - len(good)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All rows that can be read; empty if the file is missing or unreadable."""
    with contextlib.suppress(OSError, ValueError):
        return read_rows(path)[0]
    return []


def rows_digest(rows: Iterable[Mapping[str, Any]]) -> str:
    """`MetricsWriter.digest` of rows that were read."""
    state = hashlib.sha256()
    for row in rows:
        state.update(_reproducible(row))
    return state.hexdigest()


def _reproducible(row: Mapping[str, Any]) -> bytes:
    return json.dumps({key: value for key, value in row.items() if key != _TIMED}, sort_keys=True).encode() + b"\n"
