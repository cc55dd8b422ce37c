"""Backbones: images in, representations out.

All keep one contract: `stem(x)` gives the first feature map, `body(map)` the representation, `forward = body ∘ stem`,
and `num_features` its size. Any other `nn.Module` that maps (N, 3, H, W) to (N, d) can be used as well, except with
methods that need the first feature map.
"""

from torch import nn

from relatum.backbones.base import (
    TooLarge,
    at_most,
    build,
    check_side,
    evaluating,
    feature_size,
    has_idle_weights,
    representations,
    seeded,
    seeded_dropout,
)

__all__ = [
    "TooLarge",
    "at_most",
    "attach_fused",
    "build",
    "check_side",
    "evaluating",
    "feature_size",
    "has_idle_weights",
    "representations",
    "seeded",
    "seeded_dropout",
]


def attach_fused(network: nn.Module) -> bool:
    """Train a backbone through its fused CPU kernels; returns whether it has any (only Conv-4 does)."""
    from relatum.backbones.fused import attach  # numba is imported only where it is used

    return attach(network)
