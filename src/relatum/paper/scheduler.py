"""Run what is missing of a plan: every run and evaluation is a process of the published command.

One grid at a time per folder: the lock is a file that the running command inherits, so it stays taken for as long as
either of the two lives; a command whose grid was killed is told to save and end, and the next grid waits for that. A
failed command does not stop the others. Interrupting the grid interrupts its command, which saves; the same grid goes
on later.
"""

from __future__ import annotations

import contextlib
import functools
import json
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from relatum.errors import Interrupted
from relatum.paper import executors, ledger
from relatum.paper.grid import Evaluation, Pretraining
from relatum.paper.measured import Results
from relatum.paper.plan import Plan
from relatum.paper.processes import Child, Say, lock, signals_to
from relatum.system.cpus import available_cpus


@dataclass
class Outcome:
    """What `execute` did: ids of what ran, and of what failed with the reason."""

    ran: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


def execute(
    plan: Plan,
    results: Results,
    *,
    command: Sequence[str] = (sys.executable, "-m", "relatum"),
    root: str | None = None,
    executor: str = "local",
    jobs: int = 1,
    say: Say = lambda line: None,
) -> Outcome:
    """Run what a plan still misses.

    Args:
        plan: from `plan.plan`.
        results: what is there; its folder is written to.
        command: the words that start relatum.
        root: data root handed to every command.
        executor: `local` makes runs in processes of this machine, `ray` as tasks.
        jobs: runs side by side; each gets its share of the cores.
        say: takes one line per command for people.
    """
    outcome, todo, pictures = Outcome(), missing(plan, results), plan.pictures
    if executor == "ray":  # tasks have a working folder of their own
        results = Results(results.out.absolute(), [folder.absolute() for folder in results.ledgers])
        root = None if root is None else str(Path(root).absolute())
    works = [
        _Work(results, run, tuple(own), pictures & set(own), (*command,), root, f"[{number}/{len(todo)}]")
        for number, (run, own) in enumerate(todo, 1)
    ]
    with lock(results.out, say) as held:
        if executor == "ray":
            _on_ray(works, outcome, say)
            return outcome
        threads = max(1, available_cpus() // jobs) if jobs > 1 else None
        children = [Child(held, threads) for _ in range(max(1, min(jobs, len(works))))]
        with signals_to(children):
            _side_by_side(works, children, outcome, say)
    return outcome


def _side_by_side(works: Sequence[_Work], children: Sequence[Child], outcome: Outcome, say: Say) -> None:
    """Every child takes the next run when it has made one; a run and its evaluations stay in order."""
    waiting = iter(works)  # next() is atomic

    def take(child: Child) -> None:
        for work in waiting:
            work.do(child, outcome, say)

    if len(children) == 1:
        take(children[0])
        return
    with ThreadPoolExecutor(len(children)) as pool:
        ends = [pool.submit(take, child) for child in children]
    for end in ends:
        end.result()


def _on_ray(works: Sequence[_Work], outcome: Outcome, say: Say) -> None:
    """Every run with its evaluations as one task; what they say and what became of them is told as they end."""
    jobs = {work.run.id: functools.partial(_apart, work) for work in works}
    with executors.stopping(), contextlib.closing(executors.on_ray(jobs)) as ends:
        for name, ended in ends:
            if isinstance(ended, str):  # the task itself broke down: no command could record why
                outcome.failed[name] = ended
                say(f"{name}: failed, {ended}")
                continue
            lines, made = ended
            for line in lines:
                say(line)
            outcome.ran += made.ran
            outcome.failed |= made.failed


def _apart(work: _Work) -> tuple[list[str], Outcome]:
    """One run in a process of its own; the grid that waits for it holds the lock."""
    lines: list[str] = []
    outcome = Outcome()
    child = Child(None)
    with signals_to([child]):
        work.do(child, outcome, lines.append)
    return lines, outcome


def missing(plan: Plan, results: Results) -> list[tuple[Pretraining, list[Evaluation]]]:
    """Runs that still have something to do, each with its evaluations that have no result or lack their picture."""
    wanted: dict[Pretraining, list[Evaluation]] = {}
    pictures = plan.pictures
    for evaluation in plan.evaluations:
        if not results.ready(evaluation, picture=evaluation in pictures):
            wanted.setdefault(evaluation.run, []).append(evaluation)
    return list(wanted.items())


@dataclass(frozen=True)
class _Work:
    """One run of a plan and what it misses: all that is needed to make it, in whatever process."""

    results: Results
    run: Pretraining
    evaluations: tuple[Evaluation, ...]
    pictures: frozenset[Evaluation]
    command: tuple[str, ...]
    root: str | None
    label: str

    def do(self, child: Child, outcome: Outcome, say: Say) -> None:
        """Train, evaluate, and write the ledger's entry."""
        job = _Job(self.results, self.run, child, self.command, self.root, outcome, say, self.label)
        if job.train(scored=any(e.protocol == "classifier" for e in self.evaluations)):
            for evaluation in self.evaluations:
                job.evaluate(evaluation, picture=evaluation in self.pictures)
        job.enter_in_ledger()


@dataclass
class _Job:
    """One run and its evaluations."""

    results: Results
    run: Pretraining
    child: Child
    command: tuple[str, ...]
    root: str | None
    outcome: Outcome
    say: Say
    label: str

    def train(self, *, scored: bool) -> bool:
        """Make sure that the run's folder holds finished weights, and its own score where that is asked for."""
        folder = self.results.run_dir(self.run)
        if self.results.trained(self.run) and not scored:
            return True
        for entry in self.results.entries_of(self.run):
            if ledger.restore(entry, folder):
                self.say(f"{self.label} {self.run.id}: weights from the ledger ({entry.path.name})")
                return True
        words = [*self.run.arguments(), "--out", str(folder), "--resume"]
        return self._do(self.run.id, words, lambda: self.results.trained(self.run))

    def evaluate(self, evaluation: Evaluation, *, picture: bool) -> None:
        """Make one result file, and what a picture is drawn from."""
        if self.results.ready(evaluation, picture=picture):
            return
        if evaluation.protocol == "classifier":  # training should have written it
            self._failed(evaluation.id, [], 1, f"training wrote no {evaluation.file}")
            return
        words = evaluation.arguments(str(self.results.run_dir(self.run)))
        self._do(evaluation.id, words, lambda: self.results.ready(evaluation, picture=picture))

    def enter_in_ledger(self) -> None:
        """Write the run's ledger entry, renewed after every visit."""
        if not self.results.trained(self.run) or not (self.results.run_dir(self.run) / "recipe.toml").exists():
            return
        records = [row for row in self.results.records(self.run) if row.get("returncode") == 0 and row.get("command")]
        commands = list(dict.fromkeys(self._published(str(row["command"])) for row in records))
        entry = ledger.collect(self.results.run_dir(self.run), commands)
        spent = [row["seconds"] for row in self.results.records(self.run) if row.get("what") == self.run.id]
        if entry["seconds"] is None and spent:
            entry["seconds"] = round(sum(spent), 1)
        if not spent or self.run.method == "random":  # the weights came from the ledger, or of a seed
            for kept in self.results.entries_of(self.run):
                entry = {**ledger.merge(kept.document, entry), "id": self.run.id}
        path = ledger.write(self.results.out / "ledger", entry)
        if self.run.method != "random":  # a seed makes those again
            ledger.keep_weights(self.results.run_dir(self.run), path)

    def _published(self, command: str) -> str:
        """A command as anyone can give it: without this machine's folders."""
        words = shlex.split(command)
        if "--root" in words:
            place = words.index("--root")
            del words[place : place + 2]
        return shlex.join(w.replace(str(self.results.run_dir(self.run)), f"runs/{self.run.id}") for w in words)

    def _do(self, what: str, words: list[str], there: Callable[[], bool]) -> bool:
        """Run one command, record it, and judge it by its exit code and by what it left."""
        words = [*words, *(["--root", self.root] if self.root else [])]
        log = self.results.log(self.run).with_suffix(".txt")
        self.say(f"{self.label} {what} (output: {log})")
        started = time.monotonic()
        code, error = self.child.run([*self.command, *words], log)
        seconds = time.monotonic() - started
        if code == 0 and not there():
            code, error = 1, "the command ended well but left no result"
        self._record(what, words, code, error, seconds)
        if self.child.stopped is not None:
            number = self.child.stopped
            raise Interrupted(number, f"stopped during {what}; the same command goes on from here.")
        if code != 0:
            self._failed(what, words, code, error)
            return False
        self.outcome.ran.append(what)
        self.say(f"{self.label} {what}: done in {seconds:.1f} s")
        return True

    def _record(self, what: str, words: Sequence[str], code: int, error: str, seconds: float) -> None:
        row = {
            "what": what,
            "command": shlex.join(["relatum", *words]),
            "returncode": code,
            "seconds": round(seconds, 2),
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        row |= {"error": error} if code else {}
        path = self.results.log(self.run)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def _failed(self, what: str, words: Sequence[str], code: int, error: str) -> None:
        if not words:
            self._record(what, words, code, error, 0.0)
        self.outcome.failed[what] = error or f"exit code {code}"
        self.say(f"{self.label} {what}: failed (exit code {code}) {error}".rstrip())
