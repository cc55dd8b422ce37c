"""Putting another dataset or backbone in place of a table's only one, and saying so wherever the table names it."""

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
    """What the filters put in place of a table's only dataset or only backbone."""
    swaps = {}
    for asked, found in (
        (datasets, named(whole, "pretrain", "dataset")),
        (backbones, named(whole, "backbone")),
    ):
        if len(asked) == 1 and len(found) == 1 and asked[0] not in found:
            swaps[found.pop()] = asked[0]
    return swaps


def renamed(whole: Table, swaps: Mapping[str, str]) -> Table:
    """The table with what was put in named where its title and columns name the paper's: `cifar10 (paper: STL-10)`."""

    def shown(text: str) -> str:
        return re.sub(r"[\w-]+", lambda word: _instead(word[0], swaps), text)

    columns = tuple(replace(c, title=shown(c.title), group=shown(c.group)) for c in whole.columns)
    return replace(whole, title=shown(whole.title), columns=columns)


def _instead(word: str, swaps: Mapping[str, str]) -> str:
    plain = word.lower().replace("-", "")
    new = next((new for old, new in swaps.items() if old.replace("-", "") == plain), None)
    return word if new is None else f"{new} (paper: {word})"


def captioned(caption: str, remarks: Sequence[str]) -> str:
    """A caption of the paper, with what holds here in its place."""
    return f"In the paper: {caption} Here: {'; '.join(remarks)}." if remarks else caption
