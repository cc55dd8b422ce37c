"""What is known about a plan: results in run folders and in the ledger, and the figure that a cell makes of them.

What is done is decided from files alone: a result file that can be read and is of that evaluation; a run whose
`backbone.safetensors` is there, which training writes last. A command that failed leaves a record, so that its cells
are shown as failed and not merely as missing; running it again replaces the record.
"""

from __future__ import annotations

import contextlib
import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from relatum.paper import ledger
from relatum.paper.grid import Evaluation, Run
from relatum.paper.plan import Cell

DONE, PARTIAL, FAILED, MISSING, NOTHING = "done", "partial", "failed", "missing", "nothing to run"


class Results:
    """Results of a folder made by `relatum reproduce`, and of any number of ledger folders.

    Args:
        out: the folder with `runs/` and `logs/`; it need not exist.
        ledgers: folders of ledger entries; those that do not exist are passed over.
    """

    def __init__(self, out: str | Path, ledgers: Iterable[str | Path] = ()) -> None:
        self.out = Path(out)
        self.ledgers = tuple(Path(folder) for folder in ledgers)

    def run_dir(self, run: Run) -> Path:
        """Where a run's folder is or will be."""
        return self.out / "runs" / run.id

    def log(self, run: Run) -> Path:
        """Where the commands of a run and what became of them are recorded."""
        return self.out / "logs" / f"{run.id}.jsonl"

    @cached_property
    def entries(self) -> list[ledger.Entry]:
        """All ledger entries."""
        return [entry for folder in self.ledgers if folder.is_dir() for entry in ledger.read(folder)]

    def entries_of(self, run: Run) -> list[ledger.Entry]:
        """The ledger entries of a run."""
        return [entry for entry in self.entries if entry.matches(run)]

    def trained(self, run: Run) -> bool:
        """Whether the run's folder holds finished weights."""
        return (self.run_dir(run) / "backbone.safetensors").exists()

    def done(self, run: Run) -> bool:
        """Whether the pretraining was done, here or in the ledger."""
        return self.trained(run) or bool(self.entries_of(run))

    def result(self, evaluation: Evaluation) -> Mapping[str, Any] | None:
        """The result of an evaluation, from its run folder or from the ledger."""
        if (document := self._own(evaluation)) is not None:
            return document
        for entry in self.entries_of(evaluation.run):
            if (found := entry.result(evaluation)) is not None:
                return found
        return None

    def artifact(self, evaluation: Evaluation) -> Path:
        """Where an evaluation leaves what a picture is drawn from; the ledger keeps no such files."""
        return self.run_dir(evaluation.run) / "artifacts" / evaluation.file.replace(".json", ".npz")

    def ready(self, evaluation: Evaluation, *, picture: bool = False) -> bool:
        """Whether an evaluation is done; for a picture, whether what it is drawn from is here as well."""
        if picture:
            return self._own(evaluation) is not None and self.artifact(evaluation).exists()
        return self.result(evaluation) is not None

    def _own(self, evaluation: Evaluation) -> dict[str, Any] | None:
        """The result in the run's own folder."""
        document = ledger.read_json(self.run_dir(evaluation.run) / "evaluations" / evaluation.file)
        there = document is not None and ledger.is_result(document, evaluation) and self.trained(evaluation.run)
        return document if there else None

    def source(self, evaluation: Evaluation) -> Path | None:
        """The ledger entry that holds a result, for links; a run's folder where it has no entry yet."""
        if self._own(evaluation) is not None:
            entry = self.out / "ledger" / f"{evaluation.run.id}.json"
            return entry if entry.exists() else self.run_dir(evaluation.run)
        entries = self.entries_of(evaluation.run)
        return next((entry.path for entry in entries if entry.result(evaluation) is not None), None)

    def records(self, run: Run) -> list[dict[str, Any]]:
        """What became of the commands of a run, oldest first."""
        rows = []
        with contextlib.suppress(OSError):
            for line in self.log(run).read_text("utf-8").splitlines():
                with contextlib.suppress(json.JSONDecodeError):
                    rows.append(json.loads(line))
        return rows

    def failure(self, evaluation: Evaluation) -> str | None:
        """Why an evaluation has no result, if the last attempt at it or at its run failed."""
        last = {row.get("what"): row for row in self.records(evaluation.run)}
        for what in ([] if self.trained(evaluation.run) else [evaluation.run.id]) + [evaluation.id]:
            row = last.get(what)
            if row is not None and row.get("returncode") not in (0, 130, 143):
                return str(row.get("error") or f"exit code {row.get('returncode')}")
        return None


# -------------------------------------------------------------------------------------------------------------- figures


@dataclass(frozen=True)
class Figure:
    """Our figure for a cell: mean and sample standard deviation over `n` of `of` seeds; None where there is none."""

    status: str
    mean: float | None = None
    std: float | None = None
    n: int = 0
    of: int = 0
    reason: str = ""

    @property
    def text(self) -> str:
        """The figure, or its state in words: never a number that was not measured."""
        if self.mean is None:
            return self.status
        text = f"{self.mean:.2f}" + (f" ± {self.std:.2f}" if self.std is not None else "")
        return text + (f" (n = {self.n})" if self.n == self.of else f" (n = {self.n} of {self.of})")


def metric(document: Mapping[str, Any], name: str) -> float | None:
    """A finite number of a result: `accuracy`, or one of its details."""
    place = document if name == "accuracy" else document.get("details") or {}
    value = place.get(name) if isinstance(place, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def numbers(cell: Cell, evaluations: Sequence[Evaluation], results: Results) -> list[float]:
    """One number per seed that has a result."""
    found = []
    for evaluation in evaluations:
        document = results.result(evaluation)
        value = None if document is None else metric(document, cell.metric)
        if value is not None:
            found.append(value)
    return found


def figure(cell: Cell, results: Results) -> Figure:
    """What our results make of a cell."""
    if not cell.planned:
        return Figure(NOTHING)
    if cell.kind == "picture":
        ready = [results.ready(e, picture=True) for e in cell.evaluations]
        state = DONE if all(ready) else _state(cell, results)
        return Figure(state, n=sum(ready), of=len(ready), reason=_reason(cell, results) if state == FAILED else "")
    ours = numbers(cell, cell.evaluations, results)
    theirs = numbers(cell, cell.minus, results)
    n, of = len(ours), len(cell.evaluations)
    if not ours or (cell.minus and not theirs):
        failed = _state(cell, results)
        return Figure(failed, n=0, of=of, reason=_reason(cell, results) if failed == FAILED else "")
    complete = n == of and len(theirs) == len(cell.minus)
    mean, std = statistics.fmean(ours), statistics.stdev(ours) if n > 1 else None
    if cell.kind == "best":
        mean, std = max(ours), None
    if cell.kind == "delta":
        mean, std, n = mean - statistics.fmean(theirs), None, min(n, len(theirs))
    return Figure(DONE if complete else PARTIAL, mean, std, n, of)


def _reason(cell: Cell, results: Results) -> str:
    return next((r for e in (*cell.evaluations, *cell.minus) if (r := results.failure(e))), "")


def _state(cell: Cell, results: Results) -> str:
    return FAILED if _reason(cell, results) else MISSING
