"""`relatum demo`: trains, evaluates and compares three backbones on built-in images, and writes a report."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from relatum import api
from relatum.data.sets.shapes import SHAPES
from relatum.errors import InputError, Interrupted
from relatum.runs import names
from relatum.system.durations import duration
from relatum.system.progress import Display

# (method, description, arguments of `pretrain`). The schedules are short; `relatum reproduce` uses the paper's.
_STEPS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("random", "random weights (lower bound)", {}),
    ("relational", "relational reasoning, no labels", {"views": 8, "batch_size": 64, "epochs": 10}),
    ("supervised", "supervised (upper bound)", {"epochs": 10}),
)


_MAP = {"points": 1000, "iterations": 500}  # a small t-SNE: seconds instead of minutes


def run_demo(out: Path, *, overwrite: bool = False, epochs: int | None = None) -> None:
    """Pretrain on `shapes`, evaluate linearly, compare with both bounds, write a report."""
    if out.exists() and not overwrite and any((out / method).exists() for method, *_ in _STEPS):
        raise InputError(f"{out} already contains a demo; use --overwrite to replace it.")
    display = Display()
    began = time.monotonic()
    rows = []
    for method, description, arguments in _STEPS:
        display.print(f"\n── {description}")
        if epochs is not None and "epochs" in arguments:
            arguments = {**arguments, "epochs": epochs}
        try:
            run = api.pretrain(SHAPES.name, out=out / method, method=method, overwrite=overwrite, seed=1, **arguments)
        except Interrupted as stopped:  # `demo` has no --resume
            again = "relatum demo --overwrite starts the demo again"
            stopped.args = (stopped.args[0].replace("--resume continues", again),)
            raise
        result = api.evaluate("linear", run, data=SHAPES.name)
        rows.append((description, result.accuracy))
    relational = out / "relational"
    for protocol in ("retrieval", "tsne"):
        settings = _MAP if protocol == "tsne" else {}
        display.print(f"\n── {protocol} with the representations of relational reasoning")
        api.evaluate(protocol, relational, data=SHAPES.name, settings=settings)
    page = api.report([relational, out / "random", out / "supervised"], out=out / names.REPORT)
    _print_table(rows)
    spent = time.monotonic() - began
    Console().print(
        f"\nDone in {duration(spent)}. Open [bold]{page}[/bold] in a browser; the runs are in {out}/.",
        highlight=False,
        soft_wrap=True,
    )


def _print_table(rows: list[tuple[str, float | None]]) -> None:
    table = Table(title="Linear evaluation on shapes (test accuracy, %)", title_justify="left")
    table.add_column("backbone Conv-4, trained by")
    table.add_column("accuracy", justify="right")
    for description, accuracy in rows:
        table.add_row(description, "n/a" if accuracy is None else f"{accuracy:.2f}")
    Console().print("", table)
