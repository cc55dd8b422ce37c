"""Formatting of names and numbers for the page."""

from __future__ import annotations

import re
from typing import Any

from relatum import registry
from relatum.config import protocols
from relatum.config.methods import METHODS
from relatum.data import sets
from relatum.runs.reading import is_number
from relatum.system import durations

# Control characters are invalid in HTML (NUL) or invisible; their symbols from U+2400 are neither.
_SYMBOLS = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"}
_SYMBOLS |= {0x7F: 0x2421, 0x2028: 0x2424, 0x2029: 0x2424}
# Undecodable bytes of file names, and marks that reverse text (`\u202egnp.exe` would read as `exe.png`).
_UNPRINTABLE = re.compile("[\ud800-\udfff\u202a-\u202e\u2066-\u2069]")


def clean(text: object) -> str:
    """Text that is safe to display: control characters as symbols, unprintable ones as U+FFFD."""
    return _UNPRINTABLE.sub("\ufffd", str(text).translate(_SYMBOLS))


def method_title(name: Any) -> str:
    """`simclr` as `SimCLR`; unknown names stay as they are, here and below."""
    row = METHODS.get(str(name))
    return str(name) if row is None else row.title


def backbone_title(name: Any) -> str:
    """`conv4` as `Conv-4`."""
    row = registry.BACKBONES.get(str(name))
    return str(name) if row is None else row.title


def protocol_title(name: Any) -> str:
    """`knn` as the name of the protocol."""
    return protocols.TITLES.get(str(name), str(name))


def dataset_title(name: Any) -> str:
    """`cifar10` as `CIFAR-10`; a folder stays as it is."""
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
