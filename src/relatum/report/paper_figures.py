"""The paper's own figure for a condition, from `relatum.paper` where that part is installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relatum.report.page import Paper

TABLES = (
    "linear-evaluation",
    "main",
    "grain",
    "domain-transfer",
    "backbones-linear",
    "backbones-grain",
    "backbones-transfer",
    "slimagenet",
    "finetune",
)
KEYS = ("method", "backbone", "protocol", "pretrain", "dataset")


def paper_lookup() -> Paper | None:
    """A function from condition to figure, or None where there are no tables to look into."""
    try:
        from relatum.paper import published
    except ImportError:
        return None

    def look(condition: Mapping[str, Any]) -> tuple[float, float | None] | None:
        if condition.get("split", "test") != "test":
            return None
        for name in TABLES:
            found = _cell(published.load(name), condition)
            if found is not None:
                return found
        return None

    return look


def _cell(table: Any, condition: Mapping[str, Any]) -> tuple[float, float | None] | None:
    for row in table.rows:
        for column, value in zip(table.columns, row.values, strict=True):
            if column.kind != "mean" or value.mean is None or row.literature:
                continue
            cell = {**table.condition, **column.condition, **row.condition}
            if set(cell) <= set(KEYS) and all(_same(key, cell.get(key), condition) for key in KEYS):
                return float(value.mean), None if value.std is None else float(value.std)
    return None


def _same(key: str, wanted: Any, condition: Mapping[str, Any]) -> bool:
    # A random backbone has seen no data, whichever it was "trained" on.
    return wanted == condition.get(key) or (key == "pretrain" and condition.get("method") == "random")
