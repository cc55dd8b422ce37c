from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from relatum.system import durations, progress


def display(terminal: bool) -> tuple[progress.Display, io.StringIO]:
    new_display, text = progress.Display(), io.StringIO()
    new_display.console = Console(file=text, force_terminal=terminal, width=140, highlight=False, soft_wrap=True)
    return new_display, text


ROW = {"epoch": 2, "loss": 0.25, "positive_accuracy": 0.75, "negative_accuracy": 0.5, "views_per_second": 12345.6}


def test_durations_as_people_say_them() -> None:
    said = [durations.duration(s) for s in (0.2, 59, 100, 3600, 5 * 3600, 3 * 86400)]
    assert said == ["1 s", "59 s", "2 min", "60 min", "5.0 h", "3.0 days"]


def test_the_bar_shows_loss_accuracies_and_speed() -> None:
    shown, text = display(terminal=True)
    with shown.training(10, 0):
        shown.tick(1)
        shown.update(1, ROW)
        shown._bar.refresh()  # type: ignore[union-attr]
    for part in ("epoch 2", "loss 0.250", "same 0.750", "different 0.500", "12,346 views/s"):
        assert part in text.getvalue()


def test_without_a_terminal_lines_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    shown, text = display(terminal=False)
    with shown.training(1000, 100):
        for step in range(101, 111):
            now[0] += 5 if step > 101 else 60  # kernels are compiled in the first step
            shown.tick(step)
            shown.update(step, {"epoch": 1, "loss": 1.0, "accuracy": 0.5, "views_per_second": 1.0})
    assert text.getvalue().count("about 75 min left") == 1  # 5 s a step, 896 to go when it is first known
    assert text.getvalue().count("step 1") == 2  # a line every half minute
    shown.update(110, {"epoch": 3, "loss": 1.0, "knn_accuracy": 43.21, "views_per_second": 1.0})
    assert "epoch 3: kNN accuracy 43.21 %" in text.getvalue()


def test_words_are_never_markup() -> None:
    shown, text = display(terminal=False)
    shown.print("[bold]a file's name[/bold]")
    shown.warn("[red]x")
    assert "[bold]a file's name[/bold]" in text.getvalue()
    assert "[red]x" in text.getvalue()


def test_a_bar_appears_only_when_something_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.StringIO()
    monkeypatch.setattr(progress, "Console", lambda **options: Console(file=text, force_terminal=True, width=100))
    with progress.bar("quick", 3) as advance:
        advance()
    assert text.getvalue() == ""
    with progress.bar("slow", 3, patience=-1) as advance:
        advance(2, "halfway")
        advance()
    assert "slow" in text.getvalue()


@pytest.mark.parametrize(("bytes_", "amount"), [(False, "3000/3000"), (True, "3.0/3.0 kB")])
def test_a_bar_resumes_and_counts_bytes(monkeypatch: pytest.MonkeyPatch, bytes_: bool, amount: str) -> None:
    text = io.StringIO()
    monkeypatch.setattr(progress, "Console", lambda **options: Console(file=text, force_terminal=True, width=120))
    with progress.bar("decoding [red]odd[/red]", 3000, start=1000, bytes=bytes_, patience=-1) as advance:
        advance(500)
        advance(1500)
    assert "decoding [red]odd[/red]" in text.getvalue()
    assert amount in text.getvalue()


@pytest.mark.parametrize(
    ("total", "bytes_", "line"),
    [(3000, False, "1,500 of 3,000, about 1 s left"), (3000, True, "1.5 kB of 3.0 kB"), (None, True, "x: 1.5 kB")],
)
def test_without_a_terminal_a_line_says_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, total: int | None, bytes_: bool, line: str
) -> None:
    text = io.StringIO()
    monkeypatch.setattr(progress, "Console", lambda **options: Console(file=text, width=120))
    monkeypatch.setattr(progress, "_LINE_SECONDS", -1.0)
    with progress.bar("x", total, start=1000, bytes=bytes_) as advance:
        advance(500)
    assert line in text.getvalue()
