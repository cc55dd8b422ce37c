"""Methods: one file, one `nn.Module` each. Their table is `relatum.config.methods.METHODS`."""

from __future__ import annotations

from typing import Any

from torch import nn

from relatum import registry
from relatum.config.methods import METHODS
from relatum.objectives.base import Context, EpochContext, Objective

__all__ = ["Context", "EpochContext", "Objective", "build"]


def build(method: str, backbone: nn.Module, num_features: int, options: Any, context: Context) -> Objective:
    """Build an objective by the name of its method.

    Args:
        method: a name in `METHODS`.
        backbone: maps (N, C, H, W) to (N, d).
        num_features: d.
        options: an instance of the method's options class.
        context: facts about the run; the method receives the fields that it names in `needs`.
    """
    kind: type[Objective] = registry.resolve(registry.find(METHODS, "method", method).target)
    needed = {name: getattr(context, name) for name in kind.needs}
    return kind(backbone, num_features, **vars(options), **needed)
