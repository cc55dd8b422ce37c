"""The processes of a grid: a command that gets the grid's signals, and the lock that keeps a folder to one grid."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import IO

from relatum.errors import InputError
from relatum.system.locks import lock_folder, process_alive

Say = Callable[[str], None]
_WAIT_FOR_LOCK = 60.0  # seconds that an orphaned command is given to save and end


class Child:
    """Runs one command at a time, and can be told to stop it.

    Args:
        lock: the open file of `lock`, which its commands inherit; None where another process holds it.
        threads: CPU threads of its commands; None is their own choice.
    """

    def __init__(self, lock: IO[str] | None, threads: int | None = None) -> None:
        self._inherited = () if lock is None else (lock.fileno(),)
        self._environment = os.environ if threads is None else {**os.environ, "OMP_NUM_THREADS": str(threads)}
        self._process: subprocess.Popen[bytes] | None = None
        self.stopped: int | None = None

    def stop(self, number: int) -> None:
        """Pass a signal on to the command that runs, and start no other."""
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
                    env=self._environment,
                    start_new_session=True,  # a Ctrl-C reaches us alone, and is passed on once
                    pass_fds=self._inherited,
                    preexec_fn=_end_with_parent,
                )
            except OSError as error:
                return 127, f"cannot start {words[0]}: {error.strerror}"
            if self.stopped is not None:  # the signal came while the process was being made
                self._process.send_signal(self.stopped)
            code = self._process.wait()
        return (code if code >= 0 else 128 - code), _error_in(log, before)


@contextlib.contextmanager
def signals_to(children: Sequence[Child]) -> Iterator[None]:
    """SIGINT and SIGTERM go to all of the children's commands."""

    def pass_on(number: int, frame: FrameType | None) -> None:
        for child in children:
            child.stop(number)

    with handling(pass_on):
        yield


@contextlib.contextmanager
def handling(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """SIGINT and SIGTERM call `handler` while what is inside runs."""
    previous = {}
    with contextlib.suppress(ValueError):  # not in the main thread: signals are someone else's
        for number in (signal.SIGINT, signal.SIGTERM):
            previous[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)


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
def lock(out: Path, say: Say) -> Iterator[IO[str]]:
    """One grid at a time in a folder; waits a little for the command of a grid that was killed."""
    deadline = time.monotonic() + _WAIT_FOR_LOCK
    told = False

    def wait(file: IO[str]) -> None:
        nonlocal told
        file.seek(0)
        owner = file.read().strip()
        if process_alive(owner) or time.monotonic() > deadline:  # a grid, and not the command of a killed one
            raise InputError(f"another grid (process {owner or 'unknown'}) is running in {out}.")
        if not told:
            say(f"a command of an interrupted grid is still ending in {out}; waiting for it")
            told = True
        time.sleep(0.2)

    with lock_folder(out, on_busy=wait) as file:
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield file
