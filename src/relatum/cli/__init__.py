"""The command line: `app` registers the commands and handles errors; each group of commands is one file.

Nothing imports this package. Everything heavy is imported inside a command, so that `relatum --help` is instant.
"""

from relatum.cli.app import app, main

__all__ = ["app", "main"]
