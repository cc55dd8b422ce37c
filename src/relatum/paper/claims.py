"""Checks the sentences of the paper's text that state numbers, on our results and on the paper's own tables.

`tables/claims.toml` holds each sentence and the parameters of its check: most compare a row with others (`margins`),
follow a row along its columns (`growth`) or look at its best and worst rows (`extremes`). A claimed margin holds when
the measured one is at least as large, rounded as the paper rounded it. If a check needs a cell without a result, the
verdict is "not enough runs yet"; a cell with fewer seeds than the paper's counts.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean
from typing import Any

from relatum.paper import published
from relatum.paper.cells import Request, Sheet
from relatum.paper.measured import Results, score
from relatum.paper.plan import plan
from relatum.registry import BACKBONES

SUPPORTED, CONTRADICTED, NOT_ENOUGH = "supported", "contradicted", "not enough runs yet"
BASELINES = ("deepcluster", "rotation", "deepinfomax", "simclr")
Finding = tuple[bool, str]  # whether the sentence holds, and the numbers behind that
Check = Mapping[str, Any]


class MissingCell(Exception):
    """A cell that a check needs has no value."""


def _columns(name: str) -> list[str]:
    """A table's columns of means; of differences where it has no others."""
    columns = published.load(name).columns
    return [c.key for c in columns if c.kind == "mean"] or [c.key for c in columns if c.kind == "delta"]


@dataclass(frozen=True)
class Source:
    """The source of the values of cells.

    Attributes:
        read: returns the mean at (table, row, column), or None where there is none.
        columns: the keys of a table's columns, as far as they were requested.
    """

    read: Callable[[str, str, str], float | None]
    columns: Callable[[str], list[str]] = _columns

    def __call__(self, name: str, row: str, column: str) -> float:
        """A value; raises `MissingCell`."""
        value = self.read(name, row, column)
        if value is None:
            raise MissingCell(f"{name}: {row}, {column}")
        return value


def from_paper() -> Source:
    """The paper's own tables."""
    return Source(lambda name, row, column: published.load(name).value(row, column).mean)


def from_results(results: Results, request: Request) -> Source:
    """Our results: the request's seeds and scale, no filter."""
    unfiltered = replace(request, datasets=(), backbones=(), methods=())

    @cache
    def sheet(name: str) -> Sheet:
        return plan([name], unfiltered).tables[0].sheets[0]

    @cache
    def cells(name: str) -> dict[tuple[str, str], float | None]:
        return {
            (c.row.key, c.column.key): c.paper.mean if c.kind == "literature" else score(c, results).mean
            for c in sheet(name).cells
        }

    return Source(
        lambda name, row, column: cells(name).get((row, column)), lambda name: [c.key for c in sheet(name).columns]
    )


def load() -> dict[str, dict[str, Any]]:
    """The claims by key."""
    return {claim["key"]: claim for claim in published.read_toml("claims")["claims"]}


def document(results: Results, request: Request) -> dict[str, Any]:
    """The `claims` table as plain data: every sentence with its verdict on our results and on the paper's tables."""
    raw = published.read_toml("claims")
    ours, paper = from_results(results, request), from_paper()
    rows = []
    for claim in raw["claims"]:
        check = claim.pop("check")
        rows.append({**claim, "ours": judge(check, ours), "on_paper": judge(check, paper)})
    scale = {"K": request.scale.views, "epochs": request.scale.epochs, "training images": request.scale.limit_train}
    changed = ", ".join(f"{name} = {number}" for name, number in scale.items() if number is not None)
    return {
        "table": "claims",
        "title": raw["title"] + (f" — with {changed}" if changed else ""),
        "where": raw["where"],
        "caption": raw["caption"],
        "complete": all(r["ours"]["verdict"] != NOT_ENOUGH for r in rows),
        "claims": rows,
        "notes": [
            "A claimed margin holds when the measured one is at least as large, rounded as the paper rounded it."
        ],
    }


def judge(check: Check, source: Source) -> dict[str, str]:
    """A verdict and the numbers behind it."""
    try:
        holds, figures = CHECKS[check["kind"]](source, check)
    except MissingCell as cell:
        return {"verdict": NOT_ENOUGH, "figures": f"missing, among others: {cell}"}
    return {"verdict": SUPPORTED if holds else CONTRADICTED, "figures": figures}


# ------------------------------------------------------------------------------------------------------- generic checks


def _margins(source: Source, check: Check) -> Finding:
    """Compare a row with the best of other rows, in each column.

    Parameters: `tables`; `columns` (default: all); `row` (default: relational); `over`, groups of rows, each of which
    gives one margin per column (default: all baselines in one group); `above`, what each margin must exceed (default:
    0); `order`, another requirement in its place; `claimed` margins, in order, rounded to `digits`, of each column or
    of the `average`; `also`, groups whose average margin is only shown; `text`, the format of the finding.
    """
    places = [(name, c) for name in check["tables"] for c in check.get("columns") or _columns(name)]

    def compare(group: Sequence[str]) -> list[tuple[float, float]]:
        row = check.get("row", "relational")
        return [(source(t, row, c), max(source(t, r, c) for r in group)) for t, c in places]

    pairs = [pair for group in check.get("over", [BASELINES]) for pair in compare(group)]
    margins = [a - b for a, b in pairs]
    behind = [(c, m) for (_, c), m in zip(itertools.cycle(places), margins, strict=False) if m <= 0]
    orders: dict[str, Callable[[], bool]] = {
        "each": lambda: min(margins) > check.get("above", 0.0),
        "average": lambda: fmean(margins) > 0,
        "increasing": lambda: margins == sorted(margins),
        "first of pairs": lambda: all(a > b for a, b in zip(margins[::2], margins[1::2], strict=True)),
        "all but": lambda: [c for c, _ in behind] == check["but"],
        "at least": lambda: len(margins) - len(behind) >= check["number"],
    }
    order = orders[check.get("order", "each")]()
    measured = [fmean(margins)] if check.get("average") else margins
    claimed = check.get("claimed", [])
    enough = all(
        round(m, check.get("digits", 1)) >= c for m, c in zip(measured, itertools.cycle(claimed), strict=False)
    )
    text = check["text"].format(
        margins=", ".join(f"{m:+.2f}" for m in margins),
        m=margins,
        a=[a for a, _ in pairs],
        b=[b for _, b in pairs],
        average=fmean(margins),
        also=[fmean(a - b for a, b in compare(group)) for group in check.get("also", ())],
        smallest=min(margins),
        largest=max(margins),
        ahead=len(margins) - len(behind),
        n=len(margins),
        behind=", ".join(f"{c} ({m:+.2f})" for c, m in behind) or "none",
    )
    if claimed and not (order and enough):
        verdicts = {True: SUPPORTED, False: CONTRADICTED}
        text = f"order {verdicts[order]}, margin {verdicts[enough]}: {text}"
    return order and enough, text


def _growth(source: Source, check: Check) -> Finding:
    """A row's values grow along the columns: rank correlation above 0.9 in each of `tables`.

    With `partial`, columns without a value are left out, as long as three remain: any two points are correlated.
    """
    holds, parts = True, []
    for name in check["tables"]:
        if check.get("partial"):
            points = _common_points(source, name, ["relational"])["relational"]
        else:
            points = [(c, source(name, "relational", c)) for c in _columns(name)]
        rank = _spearman([v for _, v in points])
        holds = holds and rank > 0.9
        label = f"{name.rpartition('-')[2]}: " if len(check["tables"]) > 1 else ""
        line = " → ".join(f"{v:.2f} ({c.upper()})" for c, v in points)
        parts.append(f"{label}{line}; rank correlation {rank:+.2f}")
    return holds, "; ".join(parts)


def _common_points(source: Source, name: str, rows: Sequence[str]) -> dict[str, list[tuple[str, float]]]:
    """(column, value) of rows at the columns where all of them have values, of which there must be three."""
    values = {row: {c: source.read(name, row, c) for c in source.columns(name)} for row in rows}
    common = [c for c in source.columns(name) if all(values[row][c] is not None for row in rows)]
    if len(common) < 3:
        raise MissingCell(f"{name}: {', '.join(rows)} at three values of K")
    return {row: [(c, source(name, row, c)) for c in common] for row in rows}


def _spearman(values: Sequence[float]) -> float:
    """Rank correlation with position; equal values share their average rank, and all equal have no correlation."""
    n = len(values)
    ranks = [sum(w < v for w in values) + (sum(w == v for w in values) - 1) / 2 for v in values]
    middle = (n - 1) / 2
    spread = sum((r - middle) ** 2 for r in ranks) * sum((i - middle) ** 2 for i in range(n))
    return sum((r - middle) * (i - middle) for i, r in enumerate(ranks)) / spread**0.5 if spread else 0.0


def _extremes(source: Source, check: Check) -> Finding:
    """One row is the `best` and another the `worst` of `rows` in every column of `table`."""
    holds, parts = True, []
    for column in _columns(check["table"]):
        values = {row: source(check["table"], row, column) for row in check["rows"]}
        order = sorted(values, key=lambda row: -values[row])
        holds = holds and (order[0], order[-1]) == (check["best"], check["worst"])
        parts.append(f"{column}: {' > '.join(order)}")
    return holds, "; ".join(parts)


# ----------------------------------------------------------------------------------------------- checks of one sentence


def _finetune(source: Source, _: Check) -> Finding:
    rows = [r for r in published.load("finetune").rows if r.key != "relational"]
    local = max(source("finetune", r.key, "mean") for r in rows if not r.literature)
    reported = max(source("finetune", r.key, "best") for r in rows if r.literature)
    mean, best = source("finetune", "relational", "mean"), source("finetune", "relational", "best")
    figures = f"mean {mean:.2f}, best seed {best:.2f}; best local baseline {local:.2f}, best reported {reported:.2f}"
    return mean > max(local, reported), f"{figures} (margins {mean - local:+.2f}, {mean - reported:+.2f})"


def _growth_of_relational_only(source: Source, _: Check) -> Finding:
    """Of the gain from the first K to the last, other rows have less than half, and do not grow steadily."""
    columns, rows = source.columns("augmentations"), ["relational", "rotation", "supervised"]
    points = _common_points(source, "augmentations", rows)
    first, last = points["relational"][0][0], points["relational"][-1][0]
    if (first, last) != (columns[0], columns[-1]):
        raise MissingCell(f"augmentations: {', '.join(rows)} at {columns[0].upper()} and {columns[-1].upper()}")
    gains = {row: p[-1][1] - p[0][1] for row, p in points.items()}
    ranks = {row: _spearman([v for _, v in p]) for row, p in points.items()}
    figures = "; ".join(f"{row} {gains[row]:+.2f}, rank correlation {ranks[row]:+.2f}" for row in rows)
    holds = gains["relational"] > 0 and all(ranks[r] <= 0.9 and gains[r] < 0.5 * gains["relational"] for r in rows[1:])
    return holds, f"gain from K = {first.removeprefix('k')} to K = {last.removeprefix('k')}: {figures}"


def relational_pairs(batch: int, views: int) -> int:
    """P = M(K² − K)."""
    return batch * (views**2 - views)


def _pairs(_: Source, check: Check) -> Finding:
    ours, small, simclr = relational_pairs(64, 32), relational_pairs(64, 16), (128 * 2) ** 2
    holds = [round(ours / 1e4, 2), round(small / 1e4, 1), round(simclr / 1e4, 2)] == check["claimed"]
    return holds, f"counted: {ours:,} and {small:,} against {simclr:,}"


def _balance(_: Source, check: Check) -> Finding:
    views = 2 * 128
    positives = 1 / (views - 1)  # a view is compared with all others, one of which is its partner
    figures = (
        f"counted: SimCLR with mini-batch 128 has {100 * positives:.1f} % positives ({100 * 2 / views:.1f} % if a"
        " view's comparison with itself counts), relational reasoning 50 %; 2 % would be a mini-batch of about 26"
    )
    return round(100 * positives) == check["claimed"], figures


def _parameters(_: Source, check: Check) -> Finding:
    counts = [BACKBONES[name].parameters for name in check["backbones"]]
    return [round(n / 1e6, 1) for n in counts] == check["claimed"], ", ".join(f"{n:,}" for n in counts)


CHECKS: dict[str, Callable[[Source, Check], Finding]] = {
    "margins": _margins,
    "growth": _growth,
    "extremes": _extremes,
    "finetune": _finetune,
    "growth of relational only": _growth_of_relational_only,
    "pairs": _pairs,
    "balance": _balance,
    "parameters": _parameters,
}
