"""The text's sentences as checks, over whatever is in the ledger and over the paper's own tables.

A check (in `checks`) reads cells by table, row and column, and says whether the sentence holds, with its figures. Where
a cell that it needs has no result, the verdict is "not enough runs yet"; a cell with fewer seeds than the paper's
counts. A claimed margin holds when the measured one is at least as large, rounded as the paper rounded it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from relatum.paper import published
from relatum.paper.checks import CHECKS, Finding, NotEnough, Source
from relatum.paper.measured import Results, score
from relatum.paper.plan import Request, Sheet, plan

SUPPORTED, CONTRADICTED, NOT_ENOUGH = "supported", "contradicted", "not enough runs yet"


def of_paper() -> Source:
    """The paper's own tables."""
    return Source(lambda name, row, column: published.load(name).value(row, column).mean)


def of_results(results: Results, request: Request) -> Source:
    """Our runs: the request's seeds and scale, no filter."""
    wide = replace(request, datasets=(), backbones=(), methods=())

    @cache
    def sheet(name: str) -> Sheet:
        return plan([name], wide).tables[0].sheets[0]

    @cache
    def cells(name: str) -> dict[tuple[str, str], float | None]:
        # Rows of the literature are the paper's word in any case.
        return {
            (c.row.key, c.column.key): c.paper.mean if c.kind == "literature" else score(c, results).mean
            for c in sheet(name).cells
        }

    return Source(
        lambda name, row, column: cells(name).get((row, column)), lambda name: [c.key for c in sheet(name).columns]
    )


def document(results: Results, request: Request) -> dict[str, Any]:
    """The `claims` table as plain data: every sentence with its verdict on our runs and on the paper's tables."""
    raw = published.read_toml("claims")
    ours, paper = of_results(results, request), of_paper()
    rows = []
    for claim in raw["claims"]:
        check = CHECKS[claim["key"]]
        rows.append({**claim, "ours": judge(check, ours), "on_paper": judge(check, paper)})
    return {
        "table": "claims",
        "title": raw["title"] + (f" — with {_scaled(request)}" if _scaled(request) else ""),
        "where": raw["where"],
        "caption": raw["caption"],
        "complete": all(r["ours"]["verdict"] != NOT_ENOUGH for r in rows),
        "claims": rows,
        "notes": [
            "A claimed margin holds when the measured one is at least as large, rounded as the paper rounded it."
        ],
    }


def _scaled(request: Request) -> str:
    s = request.scale
    words = {"K": s.views, "epochs": s.epochs, "training images": s.limit_train}
    return ", ".join(f"{name} = {number}" for name, number in words.items() if number is not None)


def judge(check: Callable[[Source], Finding], source: Source) -> dict[str, str]:
    """A verdict and the figures behind it."""
    try:
        holds, figures = check(source)
    except NotEnough as lacking:
        return {"verdict": NOT_ENOUGH, "figures": f"missing, among others: {lacking}"}
    return {"verdict": SUPPORTED if holds else CONTRADICTED, "figures": figures}
