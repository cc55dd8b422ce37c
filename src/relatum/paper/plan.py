"""`plan`: the cells that a command's filters select, and the runs and evaluations behind them, each once.

Filters select cells by the dataset of pretraining (`--datasets`), by backbone and by method. If a table has only one
dataset or backbone, naming another one replaces the paper's; such cells have no value of the paper to compare with, and
the title says what was replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from relatum.data import sets
from relatum.errors import InputError
from relatum.paper import grid, published
from relatum.paper.cells import Cell, Plan, Planned, Request, Sheet
from relatum.paper.grid import SEEDS, Evaluation, Scale
from relatum.paper.published import Column, Row, Table, Value
from relatum.paper.substitutes import named, renamed, substitutes

_NONE = Value("?", None, None)


def plan(names: Sequence[str], request: Request | None = None) -> Plan:
    """Plan tables and figures by name.

    Args:
        names: names of `relatum list tables`.
        request: filters and scale; everything, as in the paper, by default.
    """
    request = request or Request()
    planned = []
    for name in dict.fromkeys(names):
        known = published.load(name)
        sheets = () if name == "claims" else tuple(_sheet(part, request) for part in _fitting(name, request))
        sheets = tuple(s for s in sheets if s.cells)
        if not sheets and name != "claims":
            raise _nothing(name, request)
        without = [dataset for dataset in request.datasets if not sets.get(dataset).super_categories]
        if name == "tsne-super" and without:
            raise InputError(f"{without[0]} has no super-categories; `tsne` draws its classes.")
        planned.append(Planned(name, known, sheets))
    return Plan(request, tuple(planned))


def _fitting(name: str, request: Request) -> list[Table]:
    """The tables behind a name that need the fewest substitutes: what one of them has is not put into another."""
    parts = published.parts(name)
    counts = [len(substitutes(part, request.datasets, request.backbones)) for part in parts]
    return [part for part, count in zip(parts, counts, strict=True) if count == min(counts)]


# ---------------------------------------------------------------------------------------------------- one table's cells


def _sheet(whole: Table, request: Request) -> Sheet:
    swaps = substitutes(whole, request.datasets, request.backbones)
    whole = renamed(whole, swaps)
    cells = [
        replace(cell, remarks=tuple(_remarks(whole, [cell], request, swaps)))
        for row in whole.rows
        for column, paper in zip(whole.columns, row.values, strict=True)
        if (cell := _cell(whole, row, column, paper, request, swaps)) is not None
    ]
    if not any(c.planned for c in cells):
        cells = []
    rows = tuple(r for r in whole.rows if any(c.row is r for c in cells))
    columns = tuple(k for k in whole.columns if any(c.column is k for c in cells))
    return Sheet(whole, rows, columns, tuple(cells), tuple(_remarks(whole, cells, request, swaps)))


def _cell(
    whole: Table, row: Row, column: Column, paper: Value, request: Request, swaps: Mapping[str, str]
) -> Cell | None:
    if paper.text == "-":
        return None
    if row.literature:
        return None if swaps or request.methods else Cell(whole.name, row, column, "literature", paper)
    condition = _condition(whole, row, column, swaps)
    other = {**condition, **column.minus}
    if not (_selects(request, condition) and _selects(request, other)):
        return None
    if paper.text == "n/a":
        return Cell(whole.name, row, column, "n/a", paper)
    seeds = request.seeds or SEEDS
    if column.kind == "picture":
        seeds = seeds[:1]
    if request.seeds:
        condition.pop("seeds", None)
    return Cell(
        whole.name,
        row,
        column,
        column.kind,
        _NONE if swaps else paper,
        grid.evaluations(condition, seeds, request.scale),
        grid.evaluations(other, seeds, request.scale) if column.minus else (),
        condition.get("metric", "accuracy"),
    )


def _condition(whole: Table, row: Row, column: Column, swaps: Mapping[str, str]) -> dict[str, Any]:
    merged = {**whole.condition, **column.condition, **row.condition}
    return {k: swaps.get(v, v) if k in ("pretrain", "dataset", "backbone") else v for k, v in merged.items()}


def _selects(request: Request, condition: Mapping[str, Any]) -> bool:
    """Whether the filters select a condition; fine and coarse CIFAR-100 are one dataset to pretrain on."""
    max_views = request.scale.views
    return (
        (not request.methods or condition["method"] in request.methods)
        and (not request.backbones or condition["backbone"] in request.backbones)
        and (not request.datasets or any(sets.same_images(condition["pretrain"], d) for d in request.datasets))
        and (max_views is None or condition.get("views", 0) <= max_views)
    )


# ------------------------------------------------------------------------------------------ what differs from the paper


def _remarks(whole: Table, cells: Sequence[Cell], request: Request, swaps: Mapping[str, str]) -> Iterator[str]:
    """How the conditions of cells differ from the paper's, as text."""
    planned = [c for c in cells if c.planned]
    if planned:
        yield from (f"{new} in place of {old}" for old, new in swaps.items())
    pairs = [pair for cell in planned for pair in _beside_paper(whole, cell, request, swaps)]
    if views := {paper.run.views for ours, paper in pairs if ours.run.views != paper.run.views}:
        yield f"relational reasoning with K = {request.scale.views} (paper: {_list(views)})"
    if epochs := {paper.run.epochs for ours, paper in pairs if ours.run.epochs != paper.run.epochs}:
        yield f"{request.scale.epochs} of {_list(epochs)} epochs"
    if any(ours.run.limit_train is not None for ours, _ in pairs):
        yield f"pretrained on {request.scale.limit_train:,} images"
    if probe := {(ours.epochs or 0, paper.epochs or 0) for ours, paper in pairs if ours.epochs != paper.epochs}:
        yield " and ".join(f"finetuned for {ours} of {paper} epochs" for ours, paper in sorted(probe))
    if any(ours.limit_train is not None for ours, _ in pairs):
        yield f"finetuned on {request.scale.limit_train:,} labelled images"


def _beside_paper(
    whole: Table, cell: Cell, request: Request, swaps: Mapping[str, str]
) -> Iterator[tuple[Evaluation, Evaluation]]:
    """Every evaluation behind a cell, paired with the one of the paper's schedule."""
    plain = Request(seeds=request.seeds)
    theirs = _cell(whole, cell.row, cell.column, cell.row.values[whole.columns.index(cell.column)], plain, swaps)
    if theirs is not None:
        yield from zip((*cell.evaluations, *cell.minus), (*theirs.evaluations, *theirs.minus), strict=True)


def _list(numbers: set[int]) -> str:
    return " and ".join(str(n) for n in sorted(numbers))


def _keeps_any(name: str, request: Request) -> bool:
    return any(_sheet(part, request).cells for part in _fitting(name, request))


def _nothing(name: str, request: Request) -> InputError:
    """An error for filters that leave nothing, with what the table has."""
    has: dict[str, set[str]] = {"datasets": set(), "backbones": set(), "methods": set()}
    for part in published.parts(name):
        has["datasets"] |= named(part, "pretrain")
        has["backbones"] |= named(part, "backbone")
        has["methods"] |= {str({**part.condition, **r.condition}.get("method")) for r in part.rows if not r.literature}
    filters: dict[str, Any] = {key: getattr(request, key) for key in has} | {"scale": Scale(views=request.scale.views)}
    empties = [key for key, value in filters.items() if not _keeps_any(name, Request(**{key: value}))] or list(filters)
    wrong = [f"{k}: {', '.join(sorted(v))}" for k, v in has.items() if k in empties and getattr(request, k)]
    if request.scale.views is not None and "scale" in empties:
        wrong.append("no K as small as --views")
    return InputError(f"the filters select no cell of `{name}`; it has {'; '.join(wrong)}.")
