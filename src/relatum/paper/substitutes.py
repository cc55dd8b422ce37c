"""Replaces a table's only dataset or backbone by another one, also in its title and column names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from relatum.paper.published import Table


def named(whole: Table, *keys: str) -> set[str]:
    """The datasets or backbones that a table's conditions name."""
    parts: Iterable[Mapping[str, Any]] = (whole.condition, *(p for c in whole.columns for p in (c.condition, c.minus)))
    return {part[key] for part in parts for key in keys if key in part}


def substitutes(whole: Table, datasets: Sequence[str], backbones: Sequence[str]) -> dict[str, str]:
    """The replacements of a table's only dataset and only backbone that the filters ask for."""
    swaps = {}
    for requested, present in (
        (datasets, named(whole, "pretrain", "dataset")),
        (backbones, named(whole, "backbone")),
    ):
        if len(requested) == 1 and len(present) == 1 and requested[0] not in present:
            swaps[present.pop()] = requested[0]
    return swaps


def renamed(whole: Table, swaps: Mapping[str, str]) -> Table:
    """The table with its title and columns changed accordingly: `cifar10 (paper: STL-10)`."""

    def replaced(text: str) -> str:
        return re.sub(r"[\w-]+", lambda word: _replacement(word[0], swaps), text)

    columns = tuple(replace(c, title=replaced(c.title), group=replaced(c.group)) for c in whole.columns)
    return replace(whole, title=replaced(whole.title), columns=columns)


def _replacement(word: str, swaps: Mapping[str, str]) -> str:
    plain = word.lower().replace("-", "")
    new = next((new for old, new in swaps.items() if old.replace("-", "") == plain), None)
    return word if new is None else f"{new} (paper: {word})"


def captioned(caption: str, remarks: Sequence[str]) -> str:
    """A caption of the paper, and how conditions differ from it."""
    return f"In the paper: {caption} Here: {'; '.join(remarks)}." if remarks else caption
