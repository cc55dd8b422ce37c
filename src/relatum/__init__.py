"""relatum: learn visual representations from unlabelled images by relational reasoning.

The public names; everything heavy is imported on first use, so that `import relatum` and `relatum --help` are instant.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from relatum.version import __version__

if TYPE_CHECKING:
    from relatum.api import (
        Run,
        cluster,
        duplicates,
        embed,
        evaluate,
        explore,
        export,
        import_weights,
        outliers,
        pretrain,
        reproduce,
        search,
        select,
    )
    from relatum.api.embedder import Embedder
    from relatum.collection.rows import Album, DuplicateGroup, Outlier, Selected
    from relatum.evaluation.searching import Hit
    from relatum.objectives.relational import RelationalReasoning
    from relatum.runs.results import Result
    from relatum.runs.weights import load_backbone

_MODULES = {  # of the names that are not in `relatum.api`
    "Album": "relatum.collection.rows",
    "DuplicateGroup": "relatum.collection.rows",
    "Embedder": "relatum.api.embedder",
    "Hit": "relatum.evaluation.searching",
    "Outlier": "relatum.collection.rows",
    "RelationalReasoning": "relatum.objectives.relational",
    "Result": "relatum.runs.results",
    "Selected": "relatum.collection.rows",
    "load_backbone": "relatum.runs.weights",
}
# `relatum.api.report` is not here: the package `relatum.report` has that name.
__all__ = [
    "Album",
    "DuplicateGroup",
    "Embedder",
    "Hit",
    "Outlier",
    "RelationalReasoning",
    "Result",
    "Run",
    "Selected",
    "__version__",
    "cluster",
    "duplicates",
    "embed",
    "evaluate",
    "explore",
    "export",
    "import_weights",
    "load_backbone",
    "outliers",
    "pretrain",
    "reproduce",
    "search",
    "select",
]


_PACKAGES = ("data", "views")  # usable after `import relatum` alone


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"relatum.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'relatum' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES.get(name, "relatum.api")), name)


def __dir__() -> list[str]:
    return sorted(__all__)
