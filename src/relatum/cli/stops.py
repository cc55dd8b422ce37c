"""What a command says when a signal stops it."""

from __future__ import annotations

import signal

from relatum.system import signals
from relatum.system.stderr import say


def print_stop(error: BaseException | None) -> int:
    """Say which signal ended the command; the exit code is 128 plus its number."""
    signum = error.signum if isinstance(error, signals.Stop) else signal.SIGINT
    say(f"stopped by {signal.Signals(signum).name}.")
    return 128 + signum
