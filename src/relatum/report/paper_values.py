"""The paper's value for a condition, from the tables of `relatum.paper`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relatum.paper import published

KEYS = frozenset(("method", "backbone", "protocol", "pretrain", "dataset"))


def paper_value(condition: Mapping[str, Any]) -> tuple[float, float | None] | None:
    """The paper's mean and standard deviation on test images, or None if it has none for this condition."""
    if condition.get("split", "test") != "test":
        return None
    # Random weights have seen no data, so any `pretrain` matches.
    keys = KEYS - {"pretrain"} if condition.get("method") == "random" else KEYS
    for name in published.TABLES:
        whole = published.load(name)
        for row in whole.rows:
            for column, value in zip(whole.columns, row.values, strict=True):
                cell = {**whole.condition, **column.condition, **row.condition}
                comparable = (
                    column.kind == "mean" and value.mean is not None and not row.literature and set(cell) <= KEYS
                )
                if comparable and all(cell.get(key) == condition.get(key) for key in keys):
                    return float(value.mean or 0.0), value.std
    return None
