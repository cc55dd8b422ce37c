"""Our results, in run folders and in the ledger, and the score of a cell over its seeds.

Files alone decide what is done: an evaluation is done if it has a readable result file, a run if its backbone was
written, which training does last. A command that failed leaves a record, so that its cells are shown as failed and not
as missing; running it again replaces the record.
"""

from __future__ import annotations

import contextlib
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from relatum.paper import matching
from relatum.paper.cells import Cell, Sheet
from relatum.paper.grid import Evaluation, Pretraining
from relatum.runs import ledger, speeds
from relatum.runs.folder import RunFolder
from relatum.runs.reading import is_number
from relatum.system.files import read_json
from relatum.system.progress import Display
from relatum.system.signals import EXIT_CODES

FACTS = ("views", "seconds")  # kinds of cells that say what a run cost
DONE, PARTIAL, FAILED, MISSING, NOTHING = "done", "partial", "failed", "missing", "nothing to run"


class Results:
    """Results of an output folder of `relatum reproduce`, and of any number of ledger folders.

    Args:
        out: the folder with `runs/` and `logs/`; it need not exist.
        ledgers: folders of ledger entries; those that do not exist are passed over.
    """

    def __init__(self, out: str | Path, ledgers: Iterable[str | Path] = ()) -> None:
        self.out = Path(out)
        self.ledgers = tuple(Path(folder) for folder in ledgers)

    def run_dir(self, run: Pretraining) -> Path:
        """The path of a run's folder, which need not exist."""
        return self.out / "runs" / run.id

    def log(self, run: Pretraining) -> Path:
        """The file that records the commands of a run and their outcomes."""
        return self.out / "logs" / f"{run.id}.jsonl"

    @cached_property
    def entries(self) -> list[ledger.Entry]:
        """All ledger entries; damaged ones are left out with a warning."""
        for path in (path for folder in self.ledgers if folder.is_dir() for path in ledger.damaged(folder)):
            Display().warn(f"{path} was changed after it was written and is ignored: its checksum is wrong.")
        return [entry for folder in self.ledgers if folder.is_dir() for entry in ledger.read(folder)]

    def entries_of(self, run: Pretraining) -> list[ledger.Entry]:
        """The ledger entries of a run."""
        return [entry for entry in self.entries if matching.matches(entry, run)]

    def trained(self, run: Pretraining) -> bool:
        """Whether the run's folder holds finished weights."""
        return RunFolder(self.run_dir(run)).finished()

    def done(self, run: Pretraining) -> bool:
        """Whether the pretraining was done, here or in the ledger."""
        return self.trained(run) or bool(self.entries_of(run))

    def result(self, evaluation: Evaluation) -> Mapping[str, Any] | None:
        """The result of an evaluation, from its run folder or from the ledger."""
        if (document := self._local(evaluation)) is not None:
            return document
        for entry in self.entries_of(evaluation.run):
            if (document := matching.find_result(entry, evaluation)) is not None:
                return document
        return None

    def seconds(self, run: Pretraining) -> float | None:
        """How long the pretraining takes; None if that is not known.

        For a run that was trained here, what it took. For an entry of the ledger, its steps times the seconds of a step
        that were measured on idle cores, if the ledger's `speeds.json` has them: times of different machines cannot be
        compared.
        """
        if self.trained(run) and (seconds := self.seconds_here(run.id)) is not None:
            return seconds
        for entry in self.entries_of(run):
            measured = speeds.training_seconds(entry.path.parent, entry.document["recipe"])
            if (seconds := _seconds(entry.document) if measured is None else measured) is not None:
                return seconds
        return None

    def seconds_here(self, run_id: str) -> float | None:
        """How long training in the folder of a run took; None if its weights come from the ledger."""
        return _seconds(RunFolder(self.out / "runs" / run_id).read_record())

    def artifact(self, evaluation: Evaluation) -> Path:
        """The artifact of an evaluation that a picture is drawn from; the ledger does not contain artifacts."""
        return RunFolder(self.run_dir(evaluation.run)).artifact(evaluation.stem)

    def ready(self, evaluation: Evaluation, *, picture: bool = False) -> bool:
        """Whether an evaluation is done; for a picture, whether what it is drawn from is here as well."""
        if picture:
            return self._local(evaluation) is not None and self.artifact(evaluation).exists()
        return self.result(evaluation) is not None

    def _local(self, evaluation: Evaluation) -> dict[str, Any] | None:
        """The result in the run folder."""
        document = read_json(RunFolder(self.run_dir(evaluation.run)).result(evaluation.stem))
        there = document is not None and matching.is_result(document, evaluation) and self.trained(evaluation.run)
        return document if there else None

    def source(self, evaluation: Evaluation) -> Path | None:
        """The ledger entry of a result, for links; the run's folder if it has no entry yet."""
        if self._local(evaluation) is not None:
            entry = self.out / "ledger" / f"{evaluation.run.id}.json"
            return entry if entry.exists() else self.run_dir(evaluation.run)
        entries = self.entries_of(evaluation.run)
        return next((entry.path for entry in entries if matching.find_result(entry, evaluation) is not None), None)

    def records(self, run: Pretraining) -> list[dict[str, Any]]:
        """The outcomes of the commands of a run, oldest first."""
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
            if row is not None and row.get("returncode") not in (0, *EXIT_CODES):
                return str(row.get("error") or f"exit code {row.get('returncode')}")
        return None


def _seconds(record: Mapping[str, Any]) -> float | None:
    seconds = record.get("seconds")
    return float(seconds) if is_number(seconds) and seconds > 0 else None


# -------------------------------------------------------------------------------------------------------------- figures


@dataclass(frozen=True)
class Score:
    """Our score for a cell: mean and sample standard deviation over `n` of `of` seeds; None where there is none.

    `failed` seeds have no result because a command of theirs failed; `reason` says why. A `fact` is a whole number.
    """

    status: str
    mean: float | None = None
    std: float | None = None
    n: int = 0
    of: int = 0
    failed: int = 0
    reason: str = ""
    fact: bool = False

    @property
    def text(self) -> str:
        """The score, or the status where there is none."""
        if self.mean is None:
            return self.status
        if self.fact:
            return f"{self.mean:,.0f}"
        text = f"{self.mean:.2f}" + (f" ± {self.std:.2f}" if self.std is not None else "")
        rest = f" of {self.of}" * (self.n < self.of) + f", {self.failed} failed" * bool(self.failed)
        return f"{text} (n = {self.n}{rest})"


def metric(document: Mapping[str, Any], name: str) -> float | None:
    """A finite number of a result: `accuracy`, or one of its details."""
    place = document if name == "accuracy" else document.get("details") or {}
    value = place.get(name) if isinstance(place, Mapping) else None
    return float(value) if is_number(value) else None


def score(cell: Cell, results: Results) -> Score:
    """The score of a cell."""
    if not cell.planned:
        return Score(NOTHING)
    sides = [cell.evaluations, cell.minus] if cell.minus else [cell.evaluations]
    seeds = list(zip(*sides, strict=True))
    values = [_value(cell, seed, results) for seed in seeds]
    numbers = [v for v in values if v is not None]
    reasons = [_reason(cell, seed, results) for seed, value in zip(seeds, values, strict=True) if value is None]
    failed = [r for r in reasons if r]
    status = DONE if len(numbers) == len(seeds) else PARTIAL if numbers else FAILED if failed else MISSING
    fact = cell.kind in FACTS
    whole = Score(status, None, None, len(numbers), len(seeds), len(failed), next(iter(failed), ""), fact)
    if cell.kind == "picture" or not numbers:
        return whole
    if cell.kind == "best":
        return replace(whole, mean=max(numbers))
    std = statistics.stdev(numbers) if len(numbers) > 1 and cell.kind != "delta" else None
    return replace(whole, mean=statistics.fmean(numbers), std=std)


def _value(cell: Cell, seed: Sequence[Evaluation], results: Results) -> float | None:
    """The value of a seed, minus that of the same seed for a cell of differences; 1 for a picture that exists."""
    if cell.kind == "picture":
        return 1.0 if results.ready(seed[0], picture=True) else None
    if cell.kind in FACTS:
        run = seed[0].run
        return (float(run.all_views) if results.done(run) else None) if cell.kind == "views" else results.seconds(run)
    values = []
    for evaluation in seed:
        document = results.result(evaluation)
        value = None if document is None else metric(document, cell.metric)
        if value is None:
            return None
        values.append(value)
    return values[0] - sum(values[1:])


def _reason(cell: Cell, seed: Sequence[Evaluation], results: Results) -> str:
    """Why a seed has no number or picture, if a command of it failed."""
    lacking = (e for e in seed if not results.ready(e, picture=cell.kind == "picture"))
    return next((r for e in lacking if (r := results.failure(e))), "")


def scores(sheet: Sheet, results: Results) -> dict[tuple[str, str], tuple[Cell, Score]]:
    """Cells and our scores by the keys of row and column."""
    return {(c.row.key, c.column.key): (c, score(c, results)) for c in sheet.cells}
