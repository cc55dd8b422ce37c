"""`main`: the table of commands, and how errors end a command.

Exit codes: 0 done, 1 failed, 2 bad usage or bad input, 130/143/129/138 stopped by SIGINT/SIGTERM/SIGHUP/SIGUSR1
(128 plus the signal's number). With `--json`, standard output holds exactly one JSON document; everything else goes to
standard error. A new command is a plain typed function in the file of its group and one row below.
"""

from __future__ import annotations

import functools
import io
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from relatum.cli import collections, data, evaluation, paper, tools, training, weights
from relatum.cli.help import Command as CommandWithHelp
from relatum.cli.help import Group
from relatum.cli.stops import print_stop
from relatum.errors import InputError, Interrupted, RelatumError, command_line, describe, unknown
from relatum.system import signals
from relatum.system.stderr import STDERR, discard_unwritten, say
from relatum.system.text import printable

Command = Callable[..., None]

COMMANDS: dict[str, Command] = {  # in the order of the help
    "demo": training.demo,
    "explore": collections.explore,
    "pretrain": training.pretrain,
    "evaluate": evaluation.evaluate,
    "report": evaluation.report,
    "embed": evaluation.embed,
    "search": evaluation.search,
    "duplicates": collections.duplicates,
    "outliers": collections.outliers,
    "cluster": collections.cluster,
    "select": collections.select,
    "reproduce": paper.reproduce,
    "export": weights.export,
    "import": weights.import_weights,
    "bench": tools.bench,
    "list": tools.list_names,
}
DATA_COMMANDS: dict[str, Command] = {"get": data.get, "info": data.info, "shard": data.shard}

app = typer.Typer(
    name="relatum",
    cls=Group,
    help="Learn visual representations from unlabelled images by relational reasoning. Start with `relatum demo`.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # importing rich takes longer than everything else that the help needs
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
data_app = typer.Typer(cls=Group, help="Download, inspect or pack datasets.", no_args_is_help=True)
app.add_typer(data_app, name="data")


def _interruptible(command: Command) -> Command:
    """A command that ends with the signal's exit code when it is interrupted; typer would always return 130."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            _check_current_folder()
            command(*arguments, **options)
        except Interrupted as error:  # not a failure: everything is saved
            if not error.quiet:
                say(printable(error))
            raise typer.Exit(error.exit_code) from None
        except signals.Stop as error:
            raise typer.Exit(128 + error.signum) from None

    return run


def _check_current_folder() -> None:
    """Refuse to start in a deleted folder: relative paths have no place, and torch's libraries end the process."""
    try:
        Path.cwd()
    except OSError as error:
        raise InputError(f"the current folder cannot be used ({error.strerror}): cd to another one.") from None


for _name, _command in COMMANDS.items():
    app.command(_name, cls=CommandWithHelp)(_interruptible(_command))
for _name, _command in DATA_COMMANDS.items():
    data_app.command(_name, cls=CommandWithHelp)(_interruptible(_command))


@app.callback(invoke_without_command=True)
def _top(
    version: Annotated[bool, typer.Option("--version", help="print the version")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="show a traceback when a command fails")] = False,
) -> None:
    if version:
        from relatum.version import __version__

        print(f"relatum {__version__}")
        raise typer.Exit


def main(arguments: list[str] | None = None) -> None:
    """Run a command and exit; errors are one or two lines on standard error."""
    # Before torch is imported: OpenMP's idle threads spin for long and take a core from our kernels' threads. With
    # short spinning a step of K = 4 takes 18 ms instead of 25 (docs/performance.md). A value set by the user is kept.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # file names may contain bytes that are not text
    is_program = arguments is None
    if is_program:
        _show_warnings_as_notes()
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    if debug:
        os.environ["RELATUM_DEBUG"] = "1"  # for the processes that `--devices` starts
    arguments = [argument for argument in arguments if argument != "--debug"]
    with command_line():
        code = _run(arguments, debug)
    if is_program:
        discard_unwritten()
    sys.exit(code)


def _show_warnings_as_notes() -> None:
    """Print the warnings of relatum as one-line notes; those of libraries keep the usual format."""
    package, usual = str(Path(__file__).parents[1]), warnings.showwarning

    def show(message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None) -> None:
        if file is None and filename.startswith(package):
            say(f"note: {printable(message)}")
        else:
            usual(message, category, filename, lineno, file, line)

    warnings.showwarning = show


def _run(arguments: list[str], debug: bool) -> int:
    """Run a command, print its error, and return the exit code."""
    try:
        with signals.raising() as received:
            code = app(args=arguments, prog_name="relatum", standalone_mode=False)
        # typer returns 130 without a message if any signal arrives in its own code.
        if received and code in (128 + signal.SIGINT, 128 + received[0]):
            return print_stop(signals.Stop(received[0]))
    except RelatumError as error:
        if debug:
            raise
        return error.exit_code if error.quiet else _print_error(f"{error}", error.exit_code)
    except KeyboardInterrupt as error:
        return print_stop(error)
    except BrokenPipeError:
        return _ignore_closed_pipe()
    except SystemExit as error:  # typer and rich turn a BrokenPipeError into this
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        return _ignore_closed_pipe()
    except Exception as error:
        # Up to Python 3.11 a signal in the body of a class, as during an import, is the cause of a RuntimeError.
        if isinstance(error.__cause__, KeyboardInterrupt):
            return print_stop(error.__cause__)
        return _exit_code(error, debug)
    return code if isinstance(code, int) else 0


def _ignore_closed_pipe() -> int:
    """The reader of our output has closed the pipe, as in `relatum list methods | head -1`: this is not a failure."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0


def _exit_code(error: Exception, debug: bool) -> int:
    """Print a usage error of the CLI library or an unexpected error, and return the exit code."""
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        message = error.format_message()
        context: Any = getattr(error, "ctx", None)
        if type(error).__name__ == "NoArgsIsHelpError":  # `relatum` or `relatum data` alone: the message is its help
            say(message)
            return int(error.exit_code)
        if name := re.match(r"No such command '(.*)'\.", message):
            message = str(unknown("command", name[1], context.command.list_commands(context)))
        elif getattr(error, "possibilities", None):
            message = str(unknown("option", error.option_name, error.possibilities))  # type: ignore[attr-defined]
        elif "No such option" in message:
            command = getattr(context, "command_path", "relatum")
            message = f"unknown option '{error.option_name}'; `{command} --help` lists the options."  # type: ignore[attr-defined]
        message = re.sub(r"Input should be (.*?)(, unable to parse .*)?$", r"it must be \1.", message)
        return _print_error(message, int(error.exit_code) or 2)
    if isinstance(error, typer.Abort):  # the CLI library turns KeyboardInterrupt and EOFError into this
        if not isinstance(error.__cause__, Exception):
            return print_stop(error.__cause__)
        error = error.__cause__
    if debug:
        raise error
    text = describe(error)
    return _print_error(f"{text} (--debug shows the traceback)" if text.startswith("unexpected ") else text, 1)


def _print_error(message: str, code: int) -> int:
    colour = STDERR.isatty() and not os.environ.get("NO_COLOR")
    label = "\x1b[1;31merror:\x1b[0m" if colour else "error:"
    say(f"{label} {printable(message)}")
    return code
