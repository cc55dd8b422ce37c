"""The message and the exit code of a command that a signal stopped."""

from __future__ import annotations

import signal

from relatum.system import signals
from relatum.system.stderr import say


def print_stop(error: BaseException | None) -> int:
    """Print which signal stopped the command; returns the exit code, 128 plus the signal's number."""
    signum = error.signum if isinstance(error, signals.Stop) else signal.SIGINT
    say(f"stopped by {signal.Signals(signum).name}.")
    return 128 + signum
