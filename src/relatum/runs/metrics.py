"""RUN/metrics.jsonl: one JSON object per logged step. A resumed run has no gap and no repeated step. No torch here."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from relatum.errors import InputError
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


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All rows that can be read; empty if the file is missing."""
    rows = []
    with contextlib.suppress(OSError):
        for line in path.read_text("utf-8").splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                rows.append(json.loads(line))
    return [row for row in rows if isinstance(row, dict)]
