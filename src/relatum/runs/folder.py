"""The run folder: its files, who may write to it, and the metrics that survive a resume without gap or repeat."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from relatum.errors import InputError
from relatum.system.files import write_json, write_text

_OWN = ("recipe.toml", "metrics.jsonl", "run.json", "backbone.safetensors", "relation.safetensors", "report.html")
_OWN_FOLDERS = ("checkpoints", "artifacts", "evaluations", "features", "finetuned", "tensorboard")


class RunFolder:
    """Paths and small files of one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.recipe = self.path / "recipe.toml"
        self.metrics = self.path / "metrics.jsonl"
        self.record = self.path / "run.json"
        self.last = self.path / "checkpoints" / "last.ckpt"

    def exists(self) -> bool:
        """Whether a run was started here."""
        return self.recipe.exists()

    def finished(self) -> bool:
        """Whether its backbone was written, the last thing that training does."""
        return (self.path / "backbone.safetensors").exists()

    def clear(self) -> None:
        """Remove the files of a run, and nothing else that may lie in the folder."""
        for name in _OWN:
            (self.path / name).unlink(missing_ok=True)
        for name in _OWN_FOLDERS:
            shutil.rmtree(self.path / name, ignore_errors=True)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """One process at a time: a second one is refused. The system frees the lock of a killed process."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = (self.path / ".lock").open("w")
        except OSError as error:
            raise InputError(f"cannot write to {self.path}: {error.strerror}.") from None
        with handle:
            try:
                import fcntl

                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except ImportError:  # pragma: no cover (not on Windows)
                pass
            except OSError:
                raise InputError(f"another process is training in {self.path}.") from None
            try:
                yield
            finally:
                self._tidy()

    def _tidy(self) -> None:
        """Leave no empty folder behind where bad input ended a run before it began."""
        with contextlib.suppress(OSError):
            if [path.name for path in self.path.iterdir()] == [".lock"]:
                (self.path / ".lock").unlink()
                self.path.rmdir()

    def note(self, **changes: Any) -> None:
        """Update run.json."""
        write_json(self.record, {**self.read_record(), **changes})

    def read_record(self) -> dict[str, Any]:
        """run.json, or an empty record."""
        with contextlib.suppress(OSError, json.JSONDecodeError):
            return dict(json.loads(self.record.read_text("utf-8")))
        return {}


class MetricsWriter:
    """Appends to metrics.jsonl; opening it at a step first cuts away everything after that step.

    Args:
        path: the file.
        step: the step that the run stands at.
        tensorboard: also write TensorBoard files beside it.
    """

    def __init__(self, path: Path, step: int, *, tensorboard: bool = False) -> None:
        self._board = _board(path.parent / "tensorboard", step) if tensorboard else None
        kept = []
        if path.exists():
            for line in path.read_text("utf-8").splitlines():
                with contextlib.suppress(json.JSONDecodeError, KeyError, TypeError):
                    if json.loads(line)["step"] <= step:
                        kept.append(line + "\n")
        write_text(path, "".join(kept))
        self._file = path.open("a", encoding="utf-8")

    def write(self, row: Mapping[str, Any]) -> None:
        """One line, on its way to the disk at once."""
        self._file.write(json.dumps(row, allow_nan=True) + "\n")
        self._file.flush()
        if self._board is not None:
            for name in row.keys() - {"step"}:
                self._board.add_scalar(name, row[name], row["step"])

    def sync(self) -> None:
        """Force what was written to the disk; done before a checkpoint, so that none is ahead of its metrics."""
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
