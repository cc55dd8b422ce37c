"""One display of the progress of all runs of a grid, read from their folders, on whichever machine they train."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from relatum.runs.folder import RunFolder
from relatum.runs.metrics import parse_row
from relatum.system.durations import duration
from relatum.system.stderr import STDERR
from relatum.system.text import printable

_LINE_SECONDS = 30.0  # without a terminal, the view is printed this often
_TAIL = 4096  # bytes at the end of the metrics that are looked at


@contextlib.contextmanager
def board(folders: Sequence[Path], log: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """Yield a function that updates the display of the progress of the runs in these folders.

    A terminal shows a table that is updated in place; otherwise the rows are logged every 30 seconds.
    """
    console = Console(file=STDERR, highlight=False)
    if console.is_terminal:
        with Live(console=console, refresh_per_second=1, transient=True) as live:
            yield lambda: live.update(_table(running(folders)))
        return
    shown = time.monotonic()

    def show() -> None:
        nonlocal shown
        if time.monotonic() - shown < _LINE_SECONDS:
            return
        shown = time.monotonic()
        for row in running(folders):
            log("  ".join(row))

    yield show


def running(folders: Sequence[Path]) -> list[tuple[str, str, str, str, str]]:
    """Name, steps, loss, speed and time left of each run that is training."""
    return [row for folder in folders if (row := _row(folder)) is not None]


def _row(folder: Path) -> tuple[str, str, str, str, str] | None:
    record = RunFolder(folder).read_record()
    if record.get("status") != "running":
        return None
    total, last = record.get("total_steps"), _last(RunFolder(folder).metrics)
    step = int(last.get("step", 0))
    if not isinstance(total, int) or total <= 0:
        return None
    speed, loss = last.get("views_per_second"), last.get("loss")
    return (
        printable(folder.name),
        f"step {step:,}/{total:,} ({100 * step / total:.0f} %)",
        f"loss {loss:.3f}" if isinstance(loss, int | float) else "",
        f"{speed:,.0f} views/s" if isinstance(speed, int | float) else "",
        _time_left(folder, step, total),
    )


def _time_left(folder: Path, step: int, total: int) -> str:
    """From the time between the start, when the recipe was written, and the last line; empty before the second step."""
    run = RunFolder(folder)
    try:
        began, now = run.recipe.stat().st_mtime, run.metrics.stat().st_mtime
    except OSError:
        return ""
    if step < 2 or now <= began:
        return ""
    return f"about {duration((now - began) / step * (total - step))} left"


def _last(metrics: Path) -> dict[str, Any]:
    """The last complete line of a metrics file."""
    try:
        with metrics.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            lines = file.read().split(b"\n")
    except OSError:
        return {}
    return next((row for line in reversed(lines[:-1]) if (row := parse_row(line)) is not None), {})


def _table(rows: Sequence[tuple[str, ...]]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    return table
