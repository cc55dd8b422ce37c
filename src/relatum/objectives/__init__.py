"""Methods: one file, one `nn.Module` each. Their table is `relatum.config.methods.METHODS`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from torch import nn

from relatum import registry
from relatum.config.methods import METHODS
from relatum.objectives.base import EpochContext, Objective

__all__ = ["EpochContext", "Objective", "build"]


def build(method: str, backbone: nn.Module, num_features: int, options: Any, **context: Any) -> Objective:
    """An objective by its name; `options` is the dataclass of its row, `context` what the engine knows (classes, …)."""
    row = registry.find(METHODS, "method", method)
    objective: Objective = registry.resolve(row.target)(backbone, num_features, **asdict(options), **context)
    return objective
