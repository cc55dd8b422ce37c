"""Backbones: images in, representations out.

All keep one contract: `stem(x)` gives the first feature map, `body(map)` the representation, `forward = body ∘ stem`,
and `num_features` its size. Any other `nn.Module` that maps (N, 3, H, W) to (N, d) can be used as well, except with
methods that need the first feature map.
"""

from relatum.backbones.base import (
    TooLarge,
    at_most,
    build,
    check_info,
    check_side,
    evaluating,
    feature_size,
    has_idle_weights,
    has_lazy_weights,
    representations,
    seeded,
    seeded_dropout,
)

__all__ = [
    "TooLarge",
    "at_most",
    "build",
    "check_info",
    "check_side",
    "evaluating",
    "feature_size",
    "has_idle_weights",
    "has_lazy_weights",
    "representations",
    "seeded",
    "seeded_dropout",
]
