"""`relatum demo`: the whole job on embedded images in three minutes, with a table and a page at the end."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from relatum import api
from relatum.data.sets.shapes import SHAPES
from relatum.errors import InputError
from relatum.system.progress import Display

# (method, words, flags). The schedules are short: a demo shows the way, the paper's schedules are `relatum reproduce`.
_STEPS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("random", "random weights (lower bound)", {}),
    ("relational", "relational reasoning, no labels", {"views": 8, "batch_size": 64, "epochs": 10}),
    ("supervised", "supervised (upper bound)", {"epochs": 10}),
)


_MAP = {"points": 1000, "iterations": 500}  # a small t-SNE: seconds instead of minutes


def run_demo(out: Path, *, overwrite: bool = False, epochs: int | None = None) -> None:
    """Pretrain on `shapes`, evaluate linearly, compare with both bounds, write a report."""
    if out.exists() and not overwrite and any((out / method).exists() for method, *_ in _STEPS):
        raise InputError(f"{out} already holds a demo: --overwrite replaces it.")
    display = Display()
    began = time.monotonic()
    rows = []
    for method, words, flags in _STEPS:
        display.say(f"\n── {words}")
        chosen = dict(flags)
        if epochs is not None and "epochs" in chosen:
            chosen["epochs"] = epochs
        run = api.pretrain(SHAPES.name, out=out / method, method=method, overwrite=overwrite, seed=1, **chosen)
        result = api.evaluate("linear", run, data=SHAPES.name)
        rows.append((words, result.accuracy))
    looks = out / "relational"
    for protocol in ("retrieval", "tsne"):
        settings = _MAP if protocol == "tsne" else {}
        display.say(f"\n── {protocol} of what relational reasoning learned")
        api.evaluate(protocol, looks, data=SHAPES.name, settings=settings)
    page = api.report([looks, out / "random", out / "supervised"], out=out / "report.html")
    _print_table(rows)
    spent = round(time.monotonic() - began)
    Console().print(
        f"\n{spent} s. Look at [bold]{page}[/bold]; the runs are in {out}/.", highlight=False, soft_wrap=True
    )


def _print_table(rows: list[tuple[str, float | None]]) -> None:
    table = Table(title="Linear evaluation on shapes (test accuracy, %)", title_justify="left")
    table.add_column("backbone Conv-4, trained by")
    table.add_column("accuracy", justify="right")
    for words, accuracy in rows:
        table.add_row(words, "n/a" if accuracy is None else f"{accuracy:.2f}")
    Console().print("", table)
