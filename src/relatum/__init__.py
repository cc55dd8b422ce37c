"""relatum: learn to see from unlabelled images by relational reasoning.

The public names; everything heavy is imported on first use, so that `import relatum` and `relatum --help` are instant.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from relatum.api import embed, evaluate, pretrain, search
    from relatum.checkpoint import load_backbone
    from relatum.objectives.relational import RelationalReasoning

_PUBLIC = {
    "RelationalReasoning": "relatum.objectives.relational",
    "embed": "relatum.api",
    "evaluate": "relatum.api",
    "load_backbone": "relatum.checkpoint",
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
