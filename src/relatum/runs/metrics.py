"""RUN/metrics.jsonl: one JSON object per logged step. A resumed run has no gap and no repeated step. No torch here."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relatum.errors import InputError, unknown
from relatum.runs import names
from relatum.system.files import write_text


class MetricsWriter:
    """Appends to metrics.jsonl. Opening it removes all lines after a step.

    Args:
        path: the file.
        step: the step that the run has reached.
        tensorboard: also write TensorBoard files beside it.
    """

    def __init__(self, path: Path, step: int, *, tensorboard: bool = False) -> None:
        self._board = _board(path.parent / names.TENSORBOARD, step) if tensorboard else None
        kept = []
        if path.exists():
            for line in path.read_text("utf-8").splitlines():
                with contextlib.suppress(json.JSONDecodeError, KeyError, TypeError):
                    if json.loads(line)["step"] <= step:
                        kept.append(line + "\n")
        write_text(path, "".join(kept))
        self._file = path.open("a", encoding="utf-8")

    def write(self, row: Mapping[str, Any]) -> None:
        """Append one line and flush it."""
        self._file.write(json.dumps(row, allow_nan=True) + "\n")
        self._file.flush()
        if self._board is not None:
            for name in row.keys() - {"step"}:
                self._board.add_scalar(name, row[name], row["step"])

    def sync(self) -> None:
        """Force the lines to the disk. Called before a checkpoint, so that no checkpoint is ahead of its metrics."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        if self._board is not None:
            self._board.close()


def _board(path: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise InputError("log.tensorboard needs the extra: pip install 'relatum[tensorboard]'.") from None
    return SummaryWriter(path, purge_step=step + 1)


class MetricsTable(list[dict[str, Any]]):
    """The rows of a metrics file as a table: a list of dicts that pandas and NumPy can be made from."""

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
            raise InputError("to_pandas needs pandas: pip install pandas. `to_numpy` does without.") from None
        return pandas.DataFrame(list(self), columns=self.columns)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All rows that can be read; empty if the file is missing."""
    rows = []
    with contextlib.suppress(OSError):
        for line in path.read_text("utf-8").splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                rows.append(json.loads(line))
    return [row for row in rows if isinstance(row, dict)]
