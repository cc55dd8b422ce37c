"""Escaping of text for terminals and spreadsheets: file names may contain escape codes or formulas."""

from __future__ import annotations

import unicodedata

_KEPT = "\n\t"
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet takes for the start of a formula
_DIRECTIONS = frozenset("\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def printable(text: object) -> str:
    """`text` with escape codes, other control characters and direction overrides written as `\\x1b`, `\\u202e`.

    Line ends and tabs are kept. A file name may contain anything but a slash; printed as it is, it could recolour the
    terminal, change its title or hide what follows.
    """
    text = str(text)
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(c) if _is_control(c) else c for c in text)


def counted(number: int | float, noun: str) -> str:
    """A number with its noun, whose plural ends in s: `1 image`, `1,162 images`."""
    text = f"{number:,}" if isinstance(number, int) else f"{number:g}"
    return f"{text} {noun if number == 1 else noun + 's'}"


def csv_text(text: str) -> str:
    """A text for a cell of a CSV file: a spreadsheet would compute `=1+1`, and run more than that, so it gets a `'`."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def csv_path(name: str) -> str:
    """A relative path for a cell of a CSV file: `=1+1.png` becomes `./=1+1.png`, which is the same file."""
    return f"./{name}" if name.startswith(_FORMULA) else name


def one_line(name: str) -> str:
    """A file name without line ends, which would make two names of it where each line is one name."""
    return name.replace("\r", "\\r").replace("\n", "\\n")


def _is_control(character: str) -> bool:
    if character in _DIRECTIONS:
        return True
    return character not in _KEPT and unicodedata.category(character) in ("Cc", "Cs")


def _escape(character: str) -> str:
    number = ord(character)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def distance_text(distance: float) -> str:
    """A distance for display: rounding errors between equal images (2e-07) are shown as 0.00."""
    return "0.00" if abs(distance) < 1e-4 else f"{distance:.3g}"
