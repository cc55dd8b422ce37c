"""Which ledger entries and results belong to a plan.

Entries are matched to planned pretrainings by the recipe keys that decide the weights, never by a file's name; results
are matched to planned evaluations by protocol, dataset, split, tag and settings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

from relatum.paper.grid import Evaluation, Pretraining
from relatum.runs.ledger import REQUIRED_KEYS, Entry, decisive_values
from relatum.runs.results import is_preliminary


def matches(entry: Entry, run: Pretraining) -> bool:
    """Whether an entry is of this pretraining: all recipe keys that decide the weights are equal."""
    recorded, planned = entry.decisive, _planned(run)
    if recorded is None:
        return False
    if run.method == "random":  # such weights depend on the seed and the backbone, not on the data
        return all(recorded[key] == planned[key] for key in (*REQUIRED_KEYS, "init"))
    return all(_same(recorded.get(key), planned.get(key)) for key in recorded.keys() | planned.keys())


@cache
def _planned(run: Pretraining) -> dict[str, Any]:
    return decisive_values(run.recipe())


def find_result(entry: Entry, evaluation: Evaluation) -> dict[str, Any] | None:
    """The result of an evaluation in an entry, or None."""
    return next((dict(r) for r in entry.results if is_result(r, evaluation)), None)


def is_result(document: Mapping[str, Any], evaluation: Evaluation) -> bool:
    """Whether a result file's content is of this evaluation, with the same settings (epochs, solver, ...)."""
    settings = document.get("settings")
    settings = settings if isinstance(settings, Mapping) else {}
    return (
        document.get("protocol") == evaluation.protocol
        and document.get("dataset") == evaluation.dataset
        and document.get("split") == evaluation.split
        and document.get("tag", "") == evaluation.tag
        and not is_preliminary(document)
        and all(_agrees(settings, key, value) for key, value in evaluation.settings.items())
    )


def _agrees(settings: Mapping[str, Any], key: str, planned: Any) -> bool:
    points = settings.get("n_points")
    if key == "perplexity" and isinstance(points, int):
        planned = min(planned, (points - 1) / 3)  # t-SNE reduces it for few points and records the value it used
    return _same(settings.get(key), planned)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, int | float) and isinstance(b, int | float):
        return math.isclose(a, b, rel_tol=1e-9)
    return bool(a == b)
