"""The rows of `relatum list`: methods, backbones, datasets and tables. No torch here."""

from __future__ import annotations

from typing import Any

from relatum import registry
from relatum.config.methods import METHODS
from relatum.data import sets
from relatum.errors import unknown

Rows = list[dict[str, Any]]


def rows(what: str) -> Rows:
    """Rows with `name`, `summary` and, depending on the list, more keys."""
    tables = {"methods": _methods, "backbones": _backbones, "datasets": _datasets, "tables": _tables}
    if what not in tables:
        raise unknown("list", what, tables)
    return tables[what]()


def _methods() -> Rows:
    return [{"name": name, "summary": row.summary, "uses_labels": row.uses_labels} for name, row in METHODS.items()]


def _backbones() -> Rows:
    return [
        {
            "name": name,
            "summary": f"{row.summary}: {row.parameters:,} parameters, {row.num_features} features",
            "parameters": row.parameters,
            "num_features": row.num_features,
        }
        for name, row in registry.BACKBONES.items()
    ]


def _datasets() -> Rows:
    datasets = [sets.get(name) for name in sets.names()]
    return [
        {
            "name": dataset.name,
            "summary": f"{dataset.summary}; {dataset.side} × {dataset.side}",
            "side": dataset.side,
            "classes": dataset.classes,
            "mean": list(dataset.mean),
            "std": list(dataset.std),
        }
        for dataset in datasets
    ]


def _tables() -> Rows:
    from relatum.paper import published

    tables = [published.load(name) for name in published.NAMES]
    return [{"name": table.name, "summary": f"{table.title} ({table.where})"} for table in tables]
