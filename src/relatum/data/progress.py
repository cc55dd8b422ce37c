"""A progress bar on standard error that stays out of sight while the work is short."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

_QUIET_SECONDS = 2.0


class Bar:
    """A bar that appears when the work has taken more than two seconds.

    Args:
        what: the words before the bar.
        total: steps, or bytes; None where unknown.
        start: steps done already.
        bytes: whether steps are bytes.
    """

    def __init__(self, what: str, total: int | None, *, start: int = 0, bytes: bool = False) -> None:
        self._what, self._total, self._done, self._bytes = what, total, start, bytes
        self._began = time.monotonic()
        self._progress: Progress | None = None
        self._task = TaskID(0)

    def __enter__(self) -> Bar:
        return self

    def advance(self, steps: int) -> None:
        """Say that more is done."""
        self._done += steps
        if self._progress is not None:
            self._progress.update(self._task, completed=self._done)
        elif time.monotonic() - self._began > _QUIET_SECONDS:
            amount = DownloadColumn() if self._bytes else MofNCompleteColumn()
            self._progress = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                amount,
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._task = self._progress.add_task(self._what, total=self._total, completed=self._done)
            self._progress.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()
