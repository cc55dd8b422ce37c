"""relatum: learn to see from unlabelled images by relational reasoning.

The public names; everything heavy is imported on first use, so that `import relatum` and `relatum --help` are instant.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from relatum.version import __version__

if TYPE_CHECKING:
    from relatum.api import embed, evaluate, pretrain, search
    from relatum.objectives.relational import RelationalReasoning
    from relatum.runs.weights import load_backbone

_PUBLIC = {
    "RelationalReasoning": "relatum.objectives.relational",
    "embed": "relatum.api",
    "evaluate": "relatum.api",
    "load_backbone": "relatum.runs.weights",
    "pretrain": "relatum.api",
    "search": "relatum.api",
}

__all__ = ["RelationalReasoning", "__version__", "embed", "evaluate", "load_backbone", "pretrain", "search"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'relatum' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
