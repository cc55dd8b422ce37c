"""Run what is missing of a plan: every run and evaluation is a process of the published command.

One grid at a time per folder: the lock is a file that the running command inherits, so it stays taken for as long as
either of the two lives; a command whose grid was killed is told to save and end, and the next grid waits for that. A
failed command does not stop the others. Interrupting the grid interrupts its command, which saves; the same grid goes
on later.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO

from relatum.errors import InputError, Interrupted
from relatum.paper import ledger
from relatum.paper.grid import Evaluation, Run
from relatum.paper.plan import Plan
from relatum.paper.results import Results

Say = Callable[[str], None]
_WAIT_FOR_LOCK = 60.0  # seconds that an orphaned command is given to save and end


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
    say: Say = lambda line: None,
) -> Outcome:
    """Run what a plan still misses, one command after another.

    Args:
        plan: from `plan.plan`.
        results: what is there; its folder is written to.
        command: the words that start relatum.
        root: data root handed to every command.
        say: takes one line per command for people.
    """
    outcome = Outcome()
    todo, pictures = missing(plan, results), plan.pictures
    with _lock(results.out, say) as lock, _Child(lock) as child:
        for number, (run, evaluations) in enumerate(todo, 1):
            job = _Job(results, run, child, (*command,), root, outcome, say, f"[{number}/{len(todo)}]")
            if job.train(scored=any(e.protocol == "classifier" for e in evaluations)):
                for evaluation in evaluations:
                    job.evaluate(evaluation, picture=evaluation in pictures)
            job.enter_in_ledger()
    return outcome


def missing(plan: Plan, results: Results) -> list[tuple[Run, list[Evaluation]]]:
    """Runs that still have something to do, each with its evaluations that have no result or lack their picture."""
    wanted: dict[Run, list[Evaluation]] = {}
    pictures = plan.pictures
    for evaluation in plan.evaluations:
        if not results.ready(evaluation, picture=evaluation in pictures):
            wanted.setdefault(evaluation.run, []).append(evaluation)
    return list(wanted.items())


@dataclass
class _Job:
    """One run and its evaluations."""

    results: Results
    run: Run
    child: _Child
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
        if not spent:  # the weights came from the ledger
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


# ----------------------------------------------------------------------------------------------- processes and the lock


class _Child:
    """Runs one command at a time, passes SIGINT and SIGTERM on to it, and remembers that it did."""

    def __init__(self, lock: IO[str]) -> None:
        self._lock = lock
        self._process: subprocess.Popen[bytes] | None = None
        self.stopped: int | None = None

    def __enter__(self) -> _Child:
        self._previous = {}
        with contextlib.suppress(ValueError):  # not in the main thread: signals are someone else's
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._pass_on)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self.stopped = number
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def run(self, words: Sequence[str], log: Path) -> tuple[int, str]:
        """Run a command, its output into `log`; gives its exit code and its error, or else the last line it wrote."""
        if self.stopped is not None:
            return 128 + self.stopped, ""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            before = output.tell()
            try:
                self._process = subprocess.Popen(
                    list(words),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # a Ctrl-C reaches us alone, and is passed on once
                    pass_fds=(self._lock.fileno(),),
                    preexec_fn=_end_with_parent,
                )
            except OSError as error:
                return 127, f"cannot start {words[0]}: {error.strerror}"
            if self.stopped is not None:  # the signal came while the process was being made
                self._process.send_signal(self.stopped)
            code = self._process.wait()
        return (code if code >= 0 else 128 - code), _error_in(log, before)


def _error_in(log: Path, start: int) -> str:
    """What a command said last: its error with the hint that follows, or else its last line."""
    with log.open("rb") as file:
        file.seek(start)
        lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    first = max((i for i, line in enumerate(lines) if line.startswith("error:")), default=len(lines) - 1)
    return " ".join(lines[max(first, 0) :])[:300]


def _end_with_parent() -> None:
    """In the new process: ask Linux for SIGTERM when the parent dies, however it dies."""
    with contextlib.suppress(Exception):
        import ctypes

        parent_death_signal = 1  # PR_SET_PDEATHSIG of linux/prctl.h
        ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGTERM)


@contextlib.contextmanager
def _lock(out: Path, say: Say) -> Iterator[IO[str]]:
    """One grid at a time in a folder; waits a little for the command of a grid that was killed."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        file = (out / ".lock").open("a+")
    except OSError as error:
        raise InputError(f"cannot write to {out}: {error.strerror}.") from None
    with file:
        deadline = time.monotonic() + _WAIT_FOR_LOCK
        told = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                file.seek(0)
                owner = file.read().strip()
                if _alive(owner) or time.monotonic() > deadline:
                    raise InputError(f"another grid (process {owner or 'unknown'}) is running in {out}.") from None
                if not told:
                    say(f"a command of an interrupted grid is still ending in {out}; waiting for it")
                    told = True
                time.sleep(0.2)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield file


def _alive(owner: str) -> bool:
    """Whether the process that took the lock still lives (then it is a grid, and not its orphan)."""
    if not owner.isdigit():
        return False
    try:
        os.kill(int(owner), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    with contextlib.suppress(OSError):  # a killed process that no one has waited for yet is not alive
        return ") Z " not in Path(f"/proc/{owner}/stat").read_text("utf-8")
    return True
