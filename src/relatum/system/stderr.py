"""Standard error that ignores write errors: a message that cannot be written is lost.

The terminal of a run in the background may be closed, the reader of a pipe may end (`2>&1 | head`), and the disk of a
log file may be full. None of these is a reason to stop, or to change the exit code.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import Any

_NONE = io.TextIOBase()  # writing to it is an error, as to a closed one


class _StandardError:
    """`sys.stderr` as it is at the moment; errors of writing are ignored."""

    @property
    def _stream(self) -> Any:
        stream = sys.stderr if sys.stderr is not None else _NONE
        return getattr(stream, "rich_proxied_file", stream)  # rich replaces it while a progress bar is shown

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):  # ValueError: it is closed
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


STDERR: Any = _StandardError()


def say(text: str) -> None:
    """Print a line to standard error."""
    print(text, file=STDERR, flush=True)


def discard_unwritten() -> None:
    """Discard unwritten output: Python would try again at exit, and change the exit code to 120."""
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
