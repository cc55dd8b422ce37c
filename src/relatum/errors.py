"""The errors that users see: one or two lines that say what was wrong, where, and what to do.

Everything the command line reports without a traceback derives from `RelatumError`; its `exit_code` is part of the
command's contract (1 failed, 2 bad usage or bad input, 128 + signal interrupted after a clean save).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RelatumError(Exception):
    """Something failed in a way that a message explains better than a traceback."""

    exit_code = 1


class InputError(RelatumError):
    """Bad usage or bad input: a flag, a recipe, a path or a file that cannot be used as it is."""

    exit_code = 2


class Interrupted(RelatumError):
    """Training was stopped by a signal after its state had been saved.

    Args:
        signum: the signal's number; the exit code is 128 + signum.
        message: what was saved and how to go on.
    """

    def __init__(self, signum: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = 128 + signum


def unknown(what: str, name: str, known: Iterable[str]) -> InputError:
    """An error for a name that does not exist, with the nearest one that does."""
    known = sorted(known)
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5 if len(known) <= 12 else 0.3)
    hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(known[:12])}{', …' * (len(known) > 12)}."
    return InputError(f"unknown {what} '{name}'; {hint}")
