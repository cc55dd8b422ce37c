"""A progress bar that appears only when something takes long: on standard error, with an estimate of the time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[..., None]

_PATIENCE_SECONDS = 2.0  # what is done sooner needs no bar


@contextmanager
def bar(text: str, total: int, *, show: bool = True, patience: float = _PATIENCE_SECONDS) -> Iterator[Advance]:
    """Yield `advance(steps=1, note="")`; the bar appears after `patience` seconds, and only on a terminal.

    Args:
        text: what is going on.
        total: the number of steps.
        show: False for none at all.
        patience: seconds before the bar appears.
    """
    if not show:
        yield lambda steps=1, note="": None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    drawn = Progress(
        *columns,
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
        transient=True,
    )
    task = drawn.add_task(text, total=total, note="")
    begun = time.perf_counter()
    started = False

    def advance(steps: int = 1, note: str = "") -> None:
        nonlocal started
        drawn.update(task, advance=steps, note=note)
        if not started and console.is_terminal and time.perf_counter() - begun > patience:
            drawn.start()
            started = True

    try:
        yield advance
    finally:
        if started:
            drawn.stop()
