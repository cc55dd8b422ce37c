"""Reads untrusted text files in bounded memory, and parses them in bounded time. No torch here.

An untrusted folder may contain a pipe, a link to a device, gigabytes, or JSON and TOML nested a million times. All of
these raise a `ValueError` here, which callers report like a damaged file.
"""

from __future__ import annotations

import json
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

MAX_TEXT = 64 << 20  # bytes of a JSON document: the index of a million images in a thousand shards takes 20 MB
MAX_RECIPE = 1 << 20  # bytes of a recipe: ours have 3 kB
MAX_LOG = 512 << 20  # bytes of a log with one JSON object per line
_MAX_DOTS = 200  # dots in a line of TOML: tomllib takes quadratic time for a key of many parts
_DIGITS = 19  # of a whole number of 64 bits; Python converts no more than 4,300 digits, and not all of them to float


def check_regular(path: Path) -> None:
    """Refuse pipes, devices and sockets, which may never end.

    Raises:
        ValueError: the path is none of a regular file or a folder.
        OSError: it cannot be looked at.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise ValueError("it is not a regular file")


def read_bounded(path: Path, limit: int = MAX_TEXT) -> bytes:
    """The bytes of a regular file of at most `limit` bytes.

    Raises:
        ValueError: it is larger, or a pipe or a device.
        OSError: it cannot be read.
    """
    check_regular(path)
    with open(path, "rb", opener=_open_without_waiting) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"it is larger than {limit >> 20} MiB")
    return content


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # it may have become a pipe since it was checked


def parse_json(text: str | bytes) -> Any:
    """A JSON document. Whole numbers beyond 64 bits become floats.

    Raises:
        ValueError: it is not JSON, or nested too deeply.
    """
    try:
        return json.loads(text, parse_int=_whole_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _whole_number(text: str) -> int | float:
    return int(text) if len(text.lstrip("-")) <= _DIGITS else float(text)


def parse_toml(text: str) -> dict[str, Any]:
    """A TOML document.

    Raises:
        ValueError: it is not TOML, nested too deeply, or has a whole number beyond 64 bits.
    """
    for number, line in enumerate(text.splitlines(), 1):
        if line.count(".") > _MAX_DOTS:
            raise ValueError(f"line {number} has more than {_MAX_DOTS} dots")
    try:
        tables = tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    values: list[Any] = [tables]
    while values:
        value = values.pop()
        if isinstance(value, dict):
            values += value.values()
        elif isinstance(value, list):
            values += value
        elif isinstance(value, int) and value.bit_length() > 64:
            raise ValueError("a whole number has more than 64 bits")
    return tables


def read_json_bounded(path: Path) -> Any:
    """`parse_json` of a file of at most `MAX_TEXT` bytes."""
    return parse_json(read_bounded(path).decode("utf-8"))
