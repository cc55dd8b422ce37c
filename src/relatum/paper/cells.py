"""The parts of a plan: the filters of a command, the cells that they select, and the runs behind the cells."""

from __future__ import annotations

from dataclasses import dataclass, field

from relatum.config.methods import METHODS
from relatum.config.recipe import seed
from relatum.data import sets
from relatum.errors import InputError, unknown
from relatum.paper.grid import Evaluation, Pretraining, Scale
from relatum.paper.published import Column, Row, Table, Value
from relatum.paper.substitutes import captioned
from relatum.registry import BACKBONES, DATASETS


@dataclass(frozen=True)
class Request:
    """Filters and scale of one command; an empty filter keeps everything."""

    datasets: tuple[str, ...] = ()
    backbones: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    scale: Scale = field(default_factory=Scale)

    def __post_init__(self) -> None:
        for what, names, known in (
            ("dataset", self.datasets, DATASETS),
            ("backbone", self.backbones, BACKBONES),
            ("method", self.methods, METHODS),
        ):
            for name in names:
                if name not in known:
                    raise unknown(what, name, known)
        for flag, number, least in (
            ("--views", self.scale.views, 2),
            ("--epochs", self.scale.epochs, 1),
            ("--limit-train", self.scale.limit_train, 2),
        ):
            if number is not None and number < least:
                raise InputError(f"{flag} {number} is out of range: it must be at least {least}.")
        for number in self.seeds:
            seed(number)
        twice = [number for number in dict.fromkeys(self.seeds) if self.seeds.count(number) > 1]
        if twice:
            raise InputError(f"--seeds lists {twice[0]} more than once; list each seed once.")


@dataclass(frozen=True)
class Cell:
    """One cell: the value that the paper printed and the evaluations behind ours.

    Attributes:
        table: name of the table that holds it.
        kind: `mean`, `best`, `delta` or `picture`; `literature` and `n/a` have no results behind them.
        evaluations: one per seed.
        minus: for `delta`, the evaluations whose results are subtracted.
        metric: `accuracy`, or a name in the result's details.
        remarks: how its conditions differ from the paper's.
    """

    table: str
    row: Row
    column: Column
    kind: str
    paper: Value
    evaluations: tuple[Evaluation, ...] = ()
    minus: tuple[Evaluation, ...] = ()
    metric: str = "accuracy"
    remarks: tuple[str, ...] = ()

    @property
    def planned(self) -> bool:
        """Whether evaluations belong to it."""
        return bool(self.evaluations)


@dataclass(frozen=True)
class Sheet:
    """The selected cells of one table, and how their conditions differ from the paper's."""

    table: Table
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    cells: tuple[Cell, ...]
    remarks: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The table's title, and how its conditions differ from the paper's."""
        text = f"{self.table.title} ({self.table.where})"
        return f"{text} — not the paper's conditions: {'; '.join(self.remarks)}" if self.remarks else text

    @property
    def caption(self) -> str:
        """The paper's caption, and how conditions differ from it."""
        return captioned(self.table.caption, self.remarks)


class _Work:
    """What is needed to fill cells: evaluations and the runs they read, each once."""

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells to fill."""
        raise NotImplementedError

    @property
    def evaluations(self) -> tuple[Evaluation, ...]:
        """Every evaluation, including `classifier`, which training writes by itself."""
        return tuple(dict.fromkeys(e for c in self.cells for e in (*c.evaluations, *c.minus)))

    @property
    def pictures(self) -> frozenset[Evaluation]:
        """Evaluations that a picture is drawn from: their artifacts in the run folder are needed too."""
        return frozenset(e for c in self.cells if c.kind == "picture" for e in c.evaluations)

    @property
    def runs(self) -> tuple[Pretraining, ...]:
        """Every pretraining."""
        return tuple(dict.fromkeys(e.run for e in self.evaluations))


@dataclass(frozen=True)
class Planned(_Work):
    """A requested table or figure, with one sheet per table that its cells come from."""

    name: str
    table: Table
    sheets: tuple[Sheet, ...]

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells of all its sheets."""
        return tuple(c for s in self.sheets for c in s.cells)

    @property
    def remarks(self) -> tuple[str, ...]:
        """How its conditions differ from the paper's."""
        return tuple(dict.fromkeys(r for s in self.sheets for r in s.remarks))

    @property
    def caption(self) -> str:
        """As a sheet's."""
        return captioned(self.table.caption, self.remarks)


@dataclass(frozen=True)
class Plan(_Work):
    """All tables and figures of one command."""

    request: Request
    tables: tuple[Planned, ...]

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells of all tables."""
        return tuple(c for t in self.tables for c in t.cells)

    @property
    def unused(self) -> tuple[str, ...]:
        """Requested datasets and backbones that no cell uses."""
        learned = [e for e in self.evaluations if e.run.method != "random"]  # random weights are of no dataset
        used = {name for e in learned for name in (e.dataset, e.run.data, e.run.backbone)}
        names = (*self.request.datasets, *self.request.backbones) if learned else ()
        return tuple(n for n in names if n not in used and not any(sets.same_images(n, other) for other in used))
