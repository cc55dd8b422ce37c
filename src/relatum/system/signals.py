"""Stop signals: the first one ends a command cleanly, a second one ends the process at once.

SIGINT (Ctrl-C), SIGTERM (a scheduler), SIGHUP (a closed terminal; ignored under nohup) and SIGUSR1 (Slurm's warning
before a job is pre-empted) mean the same: stop. The exit code is 128 plus the signal's number. Training collects them
and stops after the step (`collect`); everywhere else `raising` turns them into `Stop`, which is a KeyboardInterrupt, so
that `except Exception` does not swallow it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

_USER_SIGNALS = ("SIGUSR1", "SIGUSR2")
_HANGUP = "SIGHUP"
Handler = Callable[[int, FrameType | None], Any] | signal.Handlers
NAMES = (*_USER_SIGNALS, "none")
"""What may be configured as a further stop signal."""
_ALL = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", _HANGUP, *_USER_SIGNALS) if hasattr(signal, name)]
EXIT_CODES = tuple(128 + int(number) for number in _ALL)
"""How a command ends that a stop signal has stopped."""


class Stop(KeyboardInterrupt):
    """A stop signal arrived.

    Args:
        signum: its number.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.signum = signum


def numbers(extra: str = _USER_SIGNALS[0]) -> list[int]:
    """The stop signals of this system: SIGINT, SIGTERM, SIGHUP unless it is ignored, and the one named `extra`."""
    named = [int(getattr(signal, name)) for name in ("SIGINT", "SIGTERM", _HANGUP, extra) if hasattr(signal, name)]
    return [number for number in named if not _is_hangup(number) or signal.getsignal(number) != signal.SIG_IGN]


def _is_hangup(signum: int) -> bool:
    return signal.Signals(signum).name == _HANGUP  # there is none on Windows


def _is_second(signum: int, received: Sequence[int]) -> bool:
    """Whether a signal asks to end at once. The system and the shell both send SIGHUP when a terminal is closed."""
    return bool(received) and not _is_hangup(signum)


def die(signum: int) -> None:
    """End this process at once, as the signal does by default."""
    signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)


@contextlib.contextmanager
def handle(signums: Sequence[int], handler: Handler) -> Iterator[None]:
    """Handle signals inside; without effect outside the main thread, which alone receives them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in signums}
    try:
        yield
    finally:
        for number, previous in before.items():
            if previous is not None:  # a handler that was not installed from Python cannot be installed again
                signal.signal(number, previous)


@contextlib.contextmanager
def collect(extra: str = _USER_SIGNALS[0]) -> Iterator[list[int]]:
    """Collect stop signals in the list that is yielded; a second one ends the process at once.

    Args:
        extra: the signal besides SIGINT, SIGTERM and SIGHUP. If another one is selected, a SIGUSR1 that `raising` would
            answer is ignored: raised in the middle of a step, nothing would be saved.
    """
    received: list[int] = []

    def remember(signum: int, frame: FrameType | None) -> None:
        if _is_second(signum, received):
            die(signum)
        received.append(signum)

    handled = numbers(extra)
    others = [n for n in numbers() if n not in handled and isinstance(signal.getsignal(n), _Raise)]
    with handle(handled, remember), handle(others, signal.SIG_IGN):
        yield received


class _Raise:
    """The handler of `raising`."""

    def __init__(self) -> None:
        self.received: list[int] = []

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        if _is_second(signum, self.received):
            die(signum)
        if _importing_torch(frame):
            _send_again(signum)
            return
        first = not self.received
        self.received.append(signum)
        if first:
            raise Stop(signum)


def _importing_torch(frame: FrameType | None) -> bool:
    """Whether a module of torch is being imported: an exception inside its C++ code would abort the process."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and str(frame.f_globals.get("__name__")).split(".")[0] == "torch":
            return True
        frame = frame.f_back
    return False


def _send_again(signum: int) -> None:
    """Send a signal to this process in a moment."""
    threading.Timer(0.02, os.kill, (os.getpid(), signum)).start()


@contextlib.contextmanager
def raising() -> Iterator[list[int]]:
    """Raise `Stop` where a stop signal arrives; a second one ends the process at once.

    The list that is yielded holds the signal, for callers of libraries that turn `Stop` into something else.
    """
    interrupt = _Raise()

    def unraisable(event: Any) -> None:
        """Python ignores exceptions inside destructors: send the signal again, when the destructor has ended."""
        if isinstance(event.exc_value, Stop):
            interrupt.received.clear()
            _send_again(event.exc_value.signum)
        else:
            before(event)

    before = sys.unraisablehook
    sys.unraisablehook = unraisable
    try:
        with handle(numbers(), interrupt):
            yield interrupt.received
    finally:
        sys.unraisablehook = before
