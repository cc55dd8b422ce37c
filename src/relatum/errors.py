"""The errors that users see: one or two lines that state what went wrong, where, and what to do.

Everything the command line reports without a traceback derives from `RelatumError`; its `exit_code` is part of the
command's contract (1 failed, 2 bad usage or bad input, 128 + signal interrupted after a clean save).

Messages are written for the command line (`--val-fraction 0.2`, `relatum pretrain DATA --init RUN`). In Python they
name arguments and functions (`val_fraction=0.2`, `relatum.pretrain(DATA, init=RUN)`): `phrase` translates, unless the
command line is running. Commands without a public function (`relatum list`, `relatum data`) stay commands.
"""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from numbers import Integral
from typing import Any

_ON_COMMAND_LINE: ContextVar[bool] = ContextVar("relatum_on_command_line", default=False)
_SWITCHES = ("resume", "overwrite", "strict", "json", "dry-run", "render", "debug", "preprocess", "stream")
# Commands that are functions of Python, with the number of their arguments before the flags.
_FUNCTIONS = {
    "pretrain": ("pretrain", 1),
    "evaluate": ("evaluate", 2),
    "embed": ("embed", 2),
    "search": ("search", 3),
    "export": ("export", 1),
    "explore": ("explore", 1),
    "import": ("import_weights", 1),
}
# A whole command (in backquotes, or up to the end of the line); `--set key=value`; or a flag with its value: a number,
# path, name or LETTERS.
_FLAG = re.compile(
    rf"\brelatum (?P<function>{'|'.join(_FUNCTIONS)})\b(?P<rest>[^\n;`]*)|"
    r"(?P<command>\brelatum [a-z]+ [^\n;`]*)"
    r"|--set (?P<key>[\w.]+)=(?P<setting>[^\s,;:)]+)"
    r"|--(?P<flag>[a-z][a-z-]*[a-z])(?P<value> (?:val\b|[A-Z_]+\b|[^\s,;()']*[\d/:][^\s,;()']*)(?<![.:]))?"
)


@contextmanager
def command_line() -> Iterator[None]:
    """Inside, messages name the flags of the command line."""
    token = _ON_COMMAND_LINE.set(True)
    try:
        yield
    finally:
        _ON_COMMAND_LINE.reset(token)


def on_command_line() -> bool:
    """Whether messages are read on the command line."""
    return _ON_COMMAND_LINE.get()


def phrase(text: str) -> str:
    """Write a message for its reader: with flags on the command line, with arguments in Python."""
    return text if _ON_COMMAND_LINE.get() else _FLAG.sub(_argument, text)


def _call(command: str, name: str, rest: str) -> str:
    """A command as a call in Python; as it was where its arguments are not clear."""
    function, number = _FUNCTIONS[name]
    first, *flags = re.split(r"(?:^|\s)--(?=[a-z])", rest.rstrip())
    values = [_value(word) for word in first.split(maxsplit=number - 1)]
    for flag in flags:
        key, _, value = flag.partition(" ")
        if key == "set" or (not value and key not in _SWITCHES) or (value and key in _SWITCHES):
            return command
        values.append(f"{key.replace('-', '_')}={_value(value.strip()) if value else True}")
    if not values:
        return f"relatum.{function}"
    return f"relatum.{function}({', '.join(values)}{'' if flags or len(values) == number else ', ...'})"


def _value(text: str) -> str:
    """A value as Python writes it; LETTERS stand for a value of the reader."""
    number = text.lstrip("-").replace(".", "", 1).isdigit()
    return text if number or text.isupper() else repr(text.strip())


def _argument(match: re.Match[str]) -> str:
    if match["function"]:
        return _call(match[0], match["function"], match["rest"])
    if match["command"]:
        return match["command"]
    if match["key"]:
        return f"{match['key']}={match['setting']}"
    name, value = match["flag"].replace("-", "_"), (match["value"] or "").strip()
    if match["flag"] in _SWITCHES:
        return f"{name}=True{match['value'] or ''}"
    return f"{name}={_value(value)}" if value else f"{name}=..."


class RelatumError(Exception):
    """Something failed in a way that a message explains better than a traceback."""

    exit_code = 1
    quiet = False
    """Whether another process of the same run prints it."""

    def __str__(self) -> str:
        return phrase(super().__str__())


class InputError(RelatumError):
    """Bad usage or bad input: a flag, a recipe, a path or a file that cannot be used as it is."""

    exit_code = 2


class Interrupted(KeyboardInterrupt):
    """Training was stopped by a signal after its state had been saved.

    A `KeyboardInterrupt`, so that the `except Exception` of a notebook or a loop over runs does not swallow Ctrl-C.

    Args:
        signum: the signal's number; the exit code is 128 + signum.
        message: what was saved and how to resume.
    """

    quiet = False
    """Whether another process of the same run prints it."""

    def __init__(self, signum: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = 128 + signum

    def __str__(self) -> str:
        return phrase(super().__str__())


def unknown(what: str, name: object, known: Iterable[str]) -> InputError:
    """An error for a name that does not exist, with the nearest one that does."""
    known, name = sorted(known), str(name)
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.6 if len(known) <= 12 else 0.3)
    hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(known[:12])}{', …' * (len(known) > 12)}."
    return InputError(f"unknown {what} '{name}'; {hint}")


def describe(error: Exception) -> str:
    """A one-line description of an unexpected error."""
    if isinstance(error, OSError) and (error.filename is not None or error.errno is not None):
        where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
        return f"{where}{error.strerror or error}."
    if isinstance(error, MemoryError):
        return f"out of memory: {error}" if str(error) else "out of memory."
    first_line = (str(error).strip().splitlines() or [""])[0]
    return f"unexpected {type(error).__name__}: {first_line}"


def require_positive(name: str, number: Any) -> None:
    """Raise an error unless a count is a whole number of at least 1."""
    if not isinstance(number, Integral):
        raise InputError(f"{name} = {number!r} is not a whole number.")
    if number < 1:
        raise InputError(f"{name} = {number} is out of range: it must be at least 1.")


def require_channels(name: str, values: Any) -> tuple[float, float, float]:
    """Three numbers, for red, green and blue: a mean of colours in [0, 1], or a standard deviation above 0."""
    try:
        numbers = tuple(map(float, values))
    except (TypeError, ValueError):  # one number, or text
        numbers = ()
    if len(numbers) != 3 or not all(map(math.isfinite, numbers)) or (name == "std" and min(numbers) <= 0):
        above = " above 0" * (name == "std")
        raise InputError(f"{name} = {values!r} must be three numbers{above}, for red, green and blue.")
    if name == "mean" and not 0 <= min(numbers) <= max(numbers) <= 1:
        raise InputError(f"{name} = {values!r} must be three numbers from 0 to 1: colours are divided by 255.")
    return numbers[0], numbers[1], numbers[2]


def missing_package(feature: str, package: str) -> InputError:
    """An error for a feature whose optional package is not installed."""
    return InputError(f"{feature} needs {package}: pip install {package}.")
