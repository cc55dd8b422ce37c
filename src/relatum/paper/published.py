"""The paper's tables as data: one TOML file each under `tables/`, with every value and its ± as printed.

Tables that repeat a value differ slightly (36.20 and 36.21, ±0.35 and ±0.40), so each table keeps its values. A file
also gives the condition of each row and column; `grid` turns these into runs.

A value is a string: `80.46 ± 0.39`, `-17.23` (no ±), `n/a` (as in the paper), `?` (not in the paper, but measured here)
or `-` (the table has no such cell).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from relatum.errors import unknown

TABLES = (
    "main",
    "linear-evaluation",
    "slimagenet",
    "domain-transfer",
    "grain",
    "finetune",
    "backbones-linear",
    "backbones-grain",
    "backbones-transfer",
    "augmentations",
    "semi-supervised-cifar10",
    "semi-supervised-cifar100",
    "aggregation",
    "head",
    "claims",
)
FIGURES = (
    "fig-depth",
    "fig-augmentations",
    "fig-semi-supervised",
    "retrieval",
    "retrieval-errors",
    "tsne",
    "tsne-super",
)
BEYOND = ("modern",)  # tables of ours that the paper does not have, planned and rendered like its own
NAMES = TABLES + FIGURES + BEYOND


@dataclass(frozen=True)
class Value:
    """A value as printed in the paper; `mean` is None if there is no number."""

    text: str
    mean: float | None
    std: float | None

    @classmethod
    def parse(cls, text: str) -> Value:
        """Read `80.46 ± 0.39`, `-17.23`, `n/a` or `?`."""
        if text in ("n/a", "?", "-"):
            return cls(text, None, None)
        mean, _, std = text.partition("±")
        return cls(text, float(mean), float(std) if std else None)


@dataclass(frozen=True)
class Column:
    """A column of results or costs.

    `kind` is `mean`, `best` (of the seeds), `delta` (minus another condition), `picture`, or a fact about the runs:
    `views` (per image) or `seconds` (of pretraining).
    """

    key: str
    title: str
    group: str = ""
    kind: str = "mean"
    condition: Mapping[str, Any] = field(default_factory=dict)
    minus: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The column's full title, `Conv-4, CIFAR-10`."""
        return f"{self.group}, {self.title}" if self.group else self.title


@dataclass(frozen=True)
class Row:
    """A row: `bound` rows (supervised, random) are never "best"; `literature` rows have no runs."""

    key: str
    title: str
    values: tuple[Value, ...]
    condition: Mapping[str, Any] = field(default_factory=dict)
    bound: bool = False
    literature: bool = False
    note: str = ""


@dataclass(frozen=True)
class Table:
    """A table or figure of the paper.

    Attributes:
        name: its name in `relatum reproduce`.
        title, where, caption, head: text that is shown; `where` is its number in the paper.
        kind: `table` or `figure`.
        condition: what all its cells share.
        columns, rows: its cells, row by row.
        source: the tables that a figure is drawn from, if it has no cells itself.
    """

    name: str
    title: str
    where: str
    caption: str
    head: str = "Method"
    kind: str = "table"
    condition: Mapping[str, Any] = field(default_factory=dict)
    columns: tuple[Column, ...] = ()
    rows: tuple[Row, ...] = ()
    source: tuple[str, ...] = ()

    def value(self, row: str, column: str) -> Value:
        """The paper's value in a cell, by the keys of its row and column."""
        position = next(i for i, c in enumerate(self.columns) if c.key == column)
        return next(r for r in self.rows if r.key == row).values[position]


def read_toml(name: str) -> dict[str, Any]:
    """A data file of this package, `tables/NAME.toml`."""
    text = resources.files("relatum.paper").joinpath("tables", f"{name}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@cache
def load(name: str) -> Table:
    """A table or figure by its name; `claims` is a table of sentences, see `claims.py`."""
    if name not in NAMES:
        raise unknown("table", name, NAMES)
    raw = read_toml(name)
    columns = tuple(Column(**c) for c in raw.pop("columns", ()))
    rows = tuple(Row(**{**r, "values": tuple(Value.parse(v) for v in r["values"])}) for r in raw.pop("rows", ()))
    for row in rows:
        if len(row.values) != len(columns):
            raise ValueError(
                f"tables/{name}.toml: row {row.key} has {len(row.values)} values for {len(columns)} columns"
            )
    raw.pop("claims", None)
    return Table(name=name, columns=columns, rows=rows, source=tuple(raw.pop("source", ())), **raw)


def parts(name: str) -> tuple[Table, ...]:
    """The tables with the cells of a table or figure: itself, or its sources."""
    table = load(name)
    return tuple(load(s) for s in table.source) or (table,)
