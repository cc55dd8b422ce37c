"""How the page writes names and numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from relatum import registry
from relatum.config import methods, protocols
from relatum.data import sets
from relatum.runs.reading import is_number
from relatum.system import durations

METHODS = {name: row.title for name, row in methods.METHODS.items()}
BACKBONES = {name: row.title for name, row in registry.BACKBONES.items()}
PROTOCOLS = protocols.TITLES

# Control characters are invalid in HTML (NUL) or invisible; their symbols from U+2400 are neither.
_SYMBOLS = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"}
_SYMBOLS |= {0x7F: 0x2421, 0x2028: 0x2424, 0x2029: 0x2424}
# Undecodable bytes of file names, and marks that reverse text (`\u202egnp.exe` would read as `exe.png`).
_UNPRINTABLE = re.compile("[\ud800-\udfff\u202a-\u202e\u2066-\u2069]")


def clean(text: object) -> str:
    """Text that is safe to display: control characters as symbols, unprintable ones as U+FFFD."""
    return _UNPRINTABLE.sub("\ufffd", str(text).translate(_SYMBOLS))


def title(table: Mapping[str, str], name: Any) -> str:
    """The written form of a name; folders and unknown names stay as they are."""
    return table.get(str(name), str(name))


def dataset_title(name: Any) -> str:
    """`cifar10` as `CIFAR-10`; folders and unknown names stay as they are."""
    return sets.get(name).title if name in sets.names() else str(name)


def data_title(stem: str) -> str:
    """`cifar10-test` as `CIFAR-10, test`; other names stay as they are."""
    for name in sorted(sets.names(), key=len, reverse=True):
        if stem.startswith(f"{name}-"):
            return f"{dataset_title(name)}, {stem[len(name) + 1 :]}"
    return stem


def duration(seconds: Any) -> str:
    """A duration as the command line writes it, or an empty string if unknown."""
    return durations.duration(seconds) if is_number(seconds) and seconds >= 0 else ""


def count(value: Any) -> str:
    """`50,000`."""
    return f"{value:,}" if isinstance(value, int) else str(value)


def axis_number(value: float) -> str:
    """A number for an axis or a tooltip: four significant digits, thousands grouped."""
    if 1000 <= abs(value) < 1e6:
        return f"{value:,.0f}"
    return f"{value:.4g}" if 1e-4 <= abs(value) < 1e6 else f"{value:.3g}"
