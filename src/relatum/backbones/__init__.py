"""Backbones: images in, representations out.

All keep one contract: `stem(x)` gives the first feature map, `body(map)` the representation, `forward = body ∘ stem`,
and `num_features` its size. Any other `nn.Module` that maps (N, 3, H, W) to (N, d) serves as well, for every method
that does not look at the first feature map.
"""

from relatum.backbones.base import build, feature_size, seeded

__all__ = ["build", "feature_size", "seeded"]
