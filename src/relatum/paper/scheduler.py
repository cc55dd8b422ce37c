"""Runs the missing part of a plan: each pretraining and each evaluation is a process of the `relatum` command.

Only one scheduler at a time may use an output folder. Its lock file is inherited by the commands it starts, so the
folder stays locked until both have ended. A failed command does not stop the others. An interrupted scheduler passes
the signal on to its commands, which save; a command whose scheduler was killed gets SIGTERM (see `launch`). Running
the same plan again resumes it.
"""

from __future__ import annotations

import contextlib
import functools
import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from relatum.errors import InputError, Interrupted
from relatum.paper import progress, ray_tasks
from relatum.paper.cells import Plan
from relatum.paper.grid import Evaluation, Pretraining
from relatum.paper.measured import Results
from relatum.paper.worker import Log, Worker, signals_to
from relatum.runs import ledger
from relatum.runs.folder import RunFolder
from relatum.system import signals
from relatum.system.cpus import available_cpus
from relatum.system.locks import Owner, is_folder_locked, lock_folder

EXECUTORS = ("local", "ray")
_SECONDS_TO_SAVE = 60.0  # seconds for a command to save and end after its scheduler was killed


@dataclass
class Outcome:
    """Ids of the commands that succeeded, and of those that failed with the reason."""

    ran: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    def add(self, other: Outcome) -> None:
        """Add the outcome of another job."""
        self.ran += other.ran
        self.failed |= other.failed


def execute(
    plan: Plan,
    results: Results,
    *,
    command: Sequence[str] = (sys.executable, "-m", "relatum"),
    root: str | None = None,
    executor: str = "local",
    jobs: int = 1,
    log: Log = lambda line: None,
) -> Outcome:
    """Run everything in a plan that has no result yet.

    Args:
        plan: from `plan.plan`.
        results: existing results; new ones are written to its folder.
        command: program and arguments that start relatum.
        root: data root, passed to every command.
        executor: `local` (processes on this machine) or `ray` (tasks of a Ray cluster).
        jobs: number of local jobs at a time; each gets an equal share of the cores.
        log: called with one line of text per command.
    """
    todo = missing(plan, results)
    if executor == "ray":  # tasks have another working directory
        results = Results(results.out.absolute(), [folder.absolute() for folder in results.ledgers])
        root = None if root is None else str(Path(root).absolute())
    queue = [
        Job(results, run, tuple(evaluations), plan.pictures, (*command,), root, f"[{number}/{len(todo)}]")
        for number, (run, evaluations) in enumerate(todo, 1)
    ]
    outcome = Outcome()
    with _lock(results.out, log) as lock_file:
        if executor == "ray":
            _run_on_ray(queue, outcome, log)
        else:
            _run_locally(queue, jobs, lock_file, outcome, log)
    return outcome


def missing(plan: Plan, results: Results) -> list[tuple[Pretraining, list[Evaluation]]]:
    """Pretrainings with work left, each with its evaluations that lack a result or the data of a picture."""
    todo: dict[Pretraining, list[Evaluation]] = {}
    pictures = plan.pictures
    for evaluation in plan.evaluations:
        if not results.ready(evaluation, picture=evaluation in pictures):
            todo.setdefault(evaluation.run, []).append(evaluation)
    return list(todo.items())


def _run_locally(queue: Sequence[Job], jobs: int, lock_file: IO[str], outcome: Outcome, log: Log) -> None:
    threads = max(1, available_cpus() // jobs) if jobs > 1 else None
    workers = [Worker(log, lock_file, threads) for _ in range(max(1, min(jobs, len(queue))))]
    waiting = iter(queue)  # next() is atomic

    def work(worker: Worker) -> None:
        for job in waiting:
            outcome.add(job.run_on(worker))

    with signals_to(*workers), ThreadPoolExecutor(len(workers)) as pool:
        futures = [pool.submit(work, worker) for worker in workers]
    for future in futures:
        future.result()


def _run_on_ray(queue: Sequence[Job], outcome: Outcome, log: Log) -> None:
    gpus = float(ray_tasks.connect().cluster_resources().get("GPU", 0))
    needs = {job.run.id: ray_tasks.resources(job.run.recipe(), cluster_gpus=gpus) for job in queue}
    variables = ray_tasks.environment()
    tasks = {
        job.run.id: functools.partial(_ray_task, job, {**variables, "OMP_NUM_THREADS": str(needs[job.run.id].threads)})
        for job in queue
    }
    folders = [job.results.run_dir(job.run) for job in queue]
    with (
        progress.board(folders, log) as watch,
        signals.handle(signals.numbers(), ray_tasks.interrupt),
        contextlib.closing(ray_tasks.run_tasks(tasks, needs, watch=watch)) as finished,
    ):
        for name, value in finished:
            if isinstance(value, str):  # the task was lost: no command could record why
                outcome.failed[name] = value
                log(f"{name}: failed, {value}")
                continue
            lines, done = value
            for line in lines:
                log(line)
            outcome.add(done)


def _ray_task(job: Job, variables: Mapping[str, str]) -> tuple[list[str], Outcome]:
    lines: list[str] = []
    worker = Worker(lines.append, environment=variables)  # the scheduler that waits for this task holds the lock
    _wait_for(job.results.run_dir(job.run))
    with signals_to(worker):
        return lines, job.run_on(worker)


def _wait_for(run: Path) -> None:
    """Wait until the command of a lost task has saved and ended: it holds the lock of the run folder."""
    deadline = time.monotonic() + _SECONDS_TO_SAVE
    while run.is_dir() and is_folder_locked(run) and time.monotonic() < deadline:
        time.sleep(0.5)


# ----------------------------------------------------------------------------------------------------------------- jobs


@dataclass(frozen=True)
class Job:
    """A pretraining and its missing evaluations; can be pickled and run in any process.

    Attributes:
        results: where results are read and written.
        run: the pretraining.
        evaluations: those to run.
        pictures: evaluations whose artifacts are needed to draw a picture.
        command, root: as in `execute`.
        label: position in the queue, `[2/5]`.
        outcome: filled by `run_on`.
    """

    results: Results
    run: Pretraining
    evaluations: tuple[Evaluation, ...]
    pictures: frozenset[Evaluation]
    command: tuple[str, ...]
    root: str | None
    label: str
    outcome: Outcome = field(default_factory=Outcome)

    def run_on(self, worker: Worker) -> Outcome:
        """Pretrain, evaluate and write the ledger entry; an error in the files of this run stops no other job."""
        try:
            if self._pretrain(worker):
                for evaluation in self.evaluations:
                    self._evaluate(worker, evaluation)
            if self.results.trained(self.run) and RunFolder(self.results.run_dir(self.run)).exists():
                self._write_ledger_entry()
        except InputError as error:
            self.outcome.failed[self.run.id] = str(error)
            worker.log(f"{self.label} {self.run.id}: failed, {error}")
        return self.outcome

    def _pretrain(self, worker: Worker) -> bool:
        """Make sure that the run folder holds trained weights, and a supervised run's score where it is needed."""
        if all(e.protocol != "classifier" for e in self.evaluations):  # the score, which training alone writes
            if self.results.trained(self.run):
                return True
            for entry in self.results.entries_of(self.run):
                if ledger.restore(entry, self.results.run_dir(self.run)):
                    worker.log(f"{self.label} {self.run.id}: weights from the ledger ({entry.path.name})")
                    return True
        return self._execute(worker, self.run.id, self._training_arguments(), lambda: self.results.trained(self.run))

    def _training_arguments(self) -> list[str]:
        return [*self.run.arguments(), "--out", str(self.results.run_dir(self.run)), "--resume"]

    def _evaluate(self, worker: Worker, evaluation: Evaluation) -> None:
        def ready() -> bool:
            return self.results.ready(evaluation, picture=evaluation in self.pictures)

        if ready():
            return
        if evaluation.protocol == "classifier":  # training should have written it
            self._record(worker, evaluation.id, [], 1, f"training wrote no {evaluation.file}", 0.0)
            return
        self._execute(worker, evaluation.id, evaluation.arguments(str(self.results.run_dir(self.run))), ready)

    def _execute(self, worker: Worker, name: str, arguments: list[str], succeeded: Callable[[], bool]) -> bool:
        """Run one command; it succeeded if it exits with 0 and its files are there."""
        arguments += ["--root", self.root] if self.root else []
        output = self.results.log(self.run).with_suffix(".txt")
        worker.log(f"{self.label} {name} (output: {output})")
        start = time.monotonic()
        code, error = worker.run([*self.command, *arguments], output)
        if code == 0 and not succeeded():
            code, error = 1, "the command succeeded but wrote no result"
        self._record(worker, name, arguments, code, error, time.monotonic() - start)
        return code == 0

    def _record(
        self, worker: Worker, name: str, arguments: Sequence[str], code: int, error: str, seconds: float
    ) -> None:
        """Append the outcome of a command to the run's log, and report it."""
        row: dict[str, Any] = {"what": name, "command": shlex.join(["relatum", *arguments]), "returncode": code}
        row |= {"seconds": round(seconds, 2), "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        path = self.results.log(self.run)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row | ({"error": error} if code else {})) + "\n")
        if worker.signal is not None:
            raise Interrupted(worker.signal, f"stopped during {name}; run the same command to resume.")
        if code:
            self.outcome.failed[name] = error or f"exit code {code}"
            worker.log(f"{self.label} {name}: failed (exit code {code}) {error}".rstrip())
        else:
            self.outcome.ran.append(name)
            worker.log(f"{self.label} {name}: done in {seconds:.1f} s")

    def _write_ledger_entry(self) -> None:
        folder, records = self.results.run_dir(self.run), self.results.records(self.run)
        older_entries = self.results.entries_of(self.run)
        commands = [str(row["command"]) for row in records if row.get("returncode") == 0 and row.get("command")]
        spent = [row["seconds"] for row in records if row.get("what") == self.run.id]
        if not spent and not older_entries:  # trained elsewhere, and its folder was put here
            commands.insert(0, shlex.join(["relatum", *self._training_arguments()]))
        entry = ledger.collect(folder, list(dict.fromkeys(map(self._portable, commands))))
        if entry["seconds"] is None and spent:
            entry["seconds"] = round(sum(spent), 1)
        if not spent or self.run.method == "random":  # weights from the ledger, or drawn from a seed
            for older in older_entries:
                entry = {**ledger.merge(older.document, entry), "id": self.run.id}
        path = ledger.write(self.results.out / "ledger", entry)
        if self.run.method != "random":
            ledger.keep_weights(folder, path)

    def _portable(self, command: str) -> str:
        """A command without the folders of this machine."""
        arguments = shlex.split(command)
        if "--root" in arguments:
            position = arguments.index("--root")
            del arguments[position : position + 2]
        return shlex.join(a.replace(str(self.results.run_dir(self.run)), f"runs/{self.run.id}") for a in arguments)


# ----------------------------------------------------------------------------------------------------------------- lock


@contextlib.contextmanager
def _lock(out: Path, log: Log) -> Iterator[IO[str]]:
    """Lock an output folder; waits for a command whose scheduler was killed to end."""
    deadline = time.monotonic() + _SECONDS_TO_SAVE
    waiting = False

    def wait(owner: Owner | None) -> None:
        nonlocal waiting
        if (owner is not None and owner.alive()) or time.monotonic() > deadline:
            raise InputError(f"another `relatum reproduce` is running in {out} ({owner or 'process unknown'}).")
        if not waiting:
            log(f"waiting for a command of an interrupted `relatum reproduce` in {out} to end")
            waiting = True
        time.sleep(0.2)

    with lock_folder(out, on_busy=wait) as file:
        yield file
