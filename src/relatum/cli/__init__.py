"""The command line: `app` registers the commands and handles errors; each group of commands is one file.

Nothing imports this package. Everything heavy is imported inside a command, so that `relatum --help` is instant. Even
the table of commands is imported inside `main`, so that a Ctrl-C during this import prints no traceback.
"""

from __future__ import annotations

import signal
import sys

from relatum.cli.stops import print_stop
from relatum.system import signals

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Run a command and exit; errors are one or two lines on standard error."""
    try:
        with signals.raising():  # until the end: in a gap, a signal would kill the process without a word
            from relatum.cli.app import main as run

            run(arguments)
    except KeyboardInterrupt as error:
        sys.exit(print_stop(error))
    finally:
        if arguments is None:  # a Ctrl-C while the interpreter shuts down would print a traceback
            signal.signal(signal.SIGINT, signal.SIG_DFL)
