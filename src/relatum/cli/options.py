"""Arguments and options that several commands share."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from relatum.errors import InputError
from relatum.system.text import one_line, printable

Data = Annotated[
    str, typer.Argument(metavar="DATA", help="dataset name (see `relatum list datasets`) or folder of images")
]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="run folder or weights file")]
Root = Annotated[
    Path | None,
    typer.Option(help="folder that contains the datasets (default: $RELATUM_DATA, or the user's cache folder)"),
]
Backbone = Annotated[
    str | None, typer.Option(metavar="MODULE:FUNCTION", help="custom backbone that the run was trained with")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps")]
Json = Annotated[bool, typer.Option("--json", help="print the result as JSON")]


def print_json(document: Any) -> None:
    """Print one JSON document to standard output."""
    print(json.dumps(document, indent=2, default=str))


def echo(text: object) -> None:
    """Print text to standard output, with control characters of file names escaped."""
    print(printable(text))


def file_name(name: object) -> str:
    """A file name for one line of output: a line end in it would begin the name of another file."""
    return one_line(printable(name))


def key_value(text: str) -> tuple[str, str]:
    """Split the `key=value` of a `--set` option."""
    key, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--set {text!r} has no '='; write --set key=value.")
    return key.strip(), value.strip()


def split_commas(flag: str, values: Sequence[str] | None) -> list[str]:
    """The values of an option that can be repeated or separated by commas."""
    parts = [part for value in values or () for part in value.split(",") if part]
    if values and not parts:
        raise InputError(f"--{flag} is empty: give at least one value, or leave it out for all.")
    return parts
