"""`Worker` runs commands as processes, one at a time, and passes signals on to them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO

from relatum.paper import launch
from relatum.system import signals

Log = Callable[[str], None]


class Worker:
    """Runs one command at a time, and can be interrupted.

    Args:
        log: called with lines of text for the user.
        lock_file: open lock file that commands inherit, if this process holds the lock.
        threads: CPU threads per command; the command's default if None.
        environment: further variables for commands.
    """

    def __init__(
        self,
        log: Log,
        lock_file: IO[str] | None = None,
        threads: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.log = log
        self.signal: int | None = None
        self._inherited = () if lock_file is None else (lock_file.fileno(),)
        self._environment = {**os.environ, **(environment or {})}
        if threads is not None:
            self._environment["OMP_NUM_THREADS"] = str(threads)
        self._process: subprocess.Popen[bytes] | None = None

    def interrupt(self, number: int) -> None:
        """Send a signal to the running command and start no other."""
        self.signal = number
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def run(self, command: Sequence[str], output: Path) -> tuple[int, str]:
        """Run a command and append its output to a file; returns its exit code and its error message or last line."""
        if self.signal is not None:
            return 128 + self.signal, ""
        output.parent.mkdir(parents=True, exist_ok=True)
        with output.open("ab") as file:
            start = file.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", launch.__file__, str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,  # Ctrl-C reaches only the scheduler, which passes it on once
                pass_fds=self._inherited,
            )
            if self.signal is not None:  # interrupted while the process was being started
                self._process.send_signal(self.signal)
            code = self._process.wait()
        return (code if code >= 0 else 128 - code), _last_message(output, start)


def _last_message(output: Path, start: int) -> str:
    """The last `error:` line of a command's output and what follows it, or else its last line."""
    with output.open("rb") as file:
        file.seek(start)
        lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    first = max((i for i, line in enumerate(lines) if line.startswith("error:")), default=len(lines) - 1)
    return " ".join(lines[max(first, 0) :])[:300]


@contextlib.contextmanager
def signals_to(*workers: Worker) -> Iterator[None]:
    """Stop signals interrupt the workers."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        for worker in workers:
            worker.interrupt(number)

    with signals.handle(signals.numbers(), interrupt):
        yield
