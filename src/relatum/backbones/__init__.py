"""Backbones: images in, representations out.

All keep one contract: `stem(x)` gives the first feature map, `body(map)` the representation, `forward = body ∘ stem`,
and `num_features` its size. Any other `nn.Module` that maps (N, 3, H, W) to (N, d) serves as well, for every method
that does not look at the first feature map.
"""

from torch import nn

from relatum.backbones.base import build, feature_size, seeded

__all__ = ["attach_fused", "build", "feature_size", "seeded"]


def attach_fused(network: nn.Module) -> bool:
    """Let a backbone that has fused CPU kernels (Conv-4) train through them; says whether it has."""
    from relatum.backbones.fused import attach  # numba is imported only where it is used

    return attach(network)
