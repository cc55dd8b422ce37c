"""Messages and progress bars on standard error; nothing goes to standard output."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from relatum.errors import phrase
from relatum.system.durations import duration
from relatum.system.stderr import STDERR
from relatum.system.text import printable

PATIENCE = 2.0  # seconds before a bar appears
_LINE_SECONDS = 30.0  # without a terminal a line now and then takes the bar's place
_MEASURED_SECONDS = 3.0  # steps that the first estimate of the total time is based on


class Display:
    """Prints messages and shows a training bar with loss, accuracies, views per second and time left."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.console = Console(file=STDERR, quiet=quiet, highlight=False, soft_wrap=True)
        self._bar: Progress | None = None
        self._estimated = True
        self._total = 0

    def print(self, text: str) -> None:
        """Print one line."""
        self.console.print(escape(printable(phrase(text))))

    def warn(self, text: str) -> None:
        """Print one line marked as a note."""
        self.console.print(f"[yellow]note:[/yellow] {escape(printable(phrase(text)))}")

    @contextmanager
    def training(self, total: int, done: int) -> Iterator[None]:
        """Show the bar while training runs."""
        self._total, self._first, self._began, self._line = total, done, time.monotonic(), time.monotonic()
        self._estimated, self._warm = total <= done, False
        if not self.console.is_terminal:
            yield
            return
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
        )
        self._task = self._bar.add_task("training", total=total, completed=done, figures="")
        with self._bar:
            yield
        self._bar = None

    def tick(self, step: int) -> None:
        """Count a step; after the first measured steps, print once how long the run will take."""
        if not self._warm:  # the first step may compile kernels: 20 s that say nothing about the others
            self._warm, self._first, self._began = True, step, time.monotonic()
        elapsed = time.monotonic() - self._began
        if not self._estimated and elapsed > _MEASURED_SECONDS and step - self._first >= 3:
            left = elapsed / (step - self._first) * (self._total - step)
            if left > 2 * _MEASURED_SECONDS:
                self.print(f"about {duration(left)} left on this machine")
            self._estimated = True
        if self._bar is not None:
            self._bar.update(self._task, completed=step)

    def update(self, step: int, row: Mapping[str, Any]) -> None:
        """Show new values."""
        names = {"loss": "loss", "positive_accuracy": "same", "negative_accuracy": "different"}
        if "positive_accuracy" not in row:
            names["accuracy"] = "accuracy"
        figures = "  ".join(f"{word} {row[name]:.3f}" for name, word in names.items() if name in row)
        figures += f"  {row['views_per_second']:,.0f} views/s"
        if "knn_accuracy" in row:
            self.print(f"epoch {row['epoch']}: kNN accuracy {row['knn_accuracy']:.2f} %")
        if self._bar is not None:
            self._bar.update(self._task, description=f"epoch {row['epoch']}", figures=figures)
        elif time.monotonic() - self._line > _LINE_SECONDS:
            self._line = time.monotonic()
            self.print(f"step {step}/{self._total}  epoch {row['epoch']}  {figures}")


@contextmanager
def bar(
    text: str, total: int | None, *, start: int = 0, bytes: bool = False, show: bool = True, patience: float = PATIENCE
) -> Iterator[Callable[..., None]]:
    """Yield `advance(steps=1, note="")`; a bar after `patience` seconds, or without a terminal a line now and then.

    Args:
        text: what is going on.
        total: the number of steps; None where it is not known.
        start: steps that were done before.
        bytes: whether steps are bytes.
        show: False for none at all.
        patience: seconds before the bar appears: what is done sooner needs none.
    """
    console = Console(file=STDERR, quiet=not show)
    amount = DownloadColumn() if bytes else MofNCompleteColumn()
    label, note = TextColumn("{task.description}", markup=False), TextColumn("{task.fields[note]}", markup=False)
    columns = (label, BarColumn(), amount, TextColumn("left"), TimeRemainingColumn(), note)
    drawn = Progress(*columns, console=console, transient=True)
    task = drawn.add_task(printable(text), total=total, completed=start, note="")
    begun, started, printed_at = time.monotonic(), False, time.monotonic()
    last, done = "", start

    def advance(steps: int = 1, note: str = "") -> None:
        nonlocal started, printed_at, last, done
        last, done = printable(note) or last, done + steps
        drawn.update(task, advance=steps, note=last)
        now = time.monotonic()
        if console.is_terminal:
            if not started and show and now - begun > patience:
                drawn.start()
                started = True
        elif now - printed_at > _LINE_SECONDS:
            printed_at = now
            left = "" if total is None else _left(now - begun, done - start, total - done)
            of = "" if total is None else f" of {_amount(total, bytes)}"
            console.print(escape(printable(f"{text}: {_amount(done, bytes)}{of}{left} {last}".rstrip())))

    try:
        yield advance
    finally:
        if started:
            drawn.stop()


def _amount(number: int, bytes: bool) -> str:
    return decimal(number) if bytes else f"{number:,}"


def _left(seconds: float, done: int, to_do: int) -> str:
    return f", about {duration(seconds / max(done, 1) * to_do)} left"
