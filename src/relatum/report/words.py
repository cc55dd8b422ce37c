"""How the page says things: names of methods, backbones and datasets as the paper writes them, times, numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeGuard

from relatum import registry
from relatum.config import methods, protocols

METHODS = {name: row.title for name, row in methods.METHODS.items()}
BACKBONES = {name: row.title for name, row in registry.BACKBONES.items()}
DATASETS = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "cifar100-20": "CIFAR-100-20",
    "stl10": "STL-10",
    "tiny-imagenet": "tiny-ImageNet",
    "slimagenet": "SlimageNet64",
    "shapes": "shapes",
}
PROTOCOLS = protocols.TITLES


def title(table: Mapping[str, str], name: Any) -> str:
    """A name as people write it; folders and unknown names stay as they are."""
    return table.get(str(name), str(name))


def data_title(stem: str) -> str:
    """`cifar10-test` as `CIFAR-10, test`; folders stay as they are."""
    for name in sorted(DATASETS, key=len, reverse=True):
        if stem.startswith(f"{name}-"):
            return f"{DATASETS[name]}, {stem[len(name) + 1 :]}"
    return stem


def duration(seconds: Any) -> str | None:
    """`2 h 5 min`, `3 min 20 s`, `4.2 s`; None where it is not known."""
    if not number(seconds) or seconds < 0:
        return None
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes == 0:
        return f"{rest} s"
    if minutes < 60:
        return f"{minutes} min {rest} s" if minutes < 10 and rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} d {hours % 24} h"


def number(value: Any) -> TypeGuard[float]:
    """Whether it is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def count(value: Any) -> str:
    """`50,000`."""
    return f"{value:,}" if isinstance(value, int) else str(value)


def percent(value: Any) -> str:
    """`61.03 %`, or a dash."""
    return f"{value:.2f} %" if number(value) else "–"


def short(value: float) -> str:
    """A number for an axis or a tooltip: four significant digits, thousands grouped."""
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 1e6 or size < 1e-4:
        return f"{value:.3g}"
    if size >= 1000:
        return f"{value:,.0f}"
    text = f"{value:.4g}"
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text
