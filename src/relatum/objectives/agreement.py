"""Means over ordered pairs of views in closed form, without a loop over pairs; several methods use them.

Shape letters: K views, M images, P size of the projection, C number of prototypes.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F


def mean_cosine(x_KMP: Tensor, y_KMP: Tensor) -> Tensor:
    """The mean of cos(x_a, y_b) over images and ordered pairs a ≠ b of views."""
    return _mean_product(F.normalize(x_KMP, dim=2), F.normalize(y_KMP, dim=2))


def mean_cross_entropy(targets_KMC: Tensor, log_p_LMC: Tensor) -> Tensor:
    """The mean of −Σ_c t_a log p_b over images and pairs of a target view a < K and another view b < L, where L ≥ K.

    The first K of the L views are those of the targets; a view is not compared with itself.
    """
    return -_mean_product(targets_KMC, log_p_LMC)


def _mean_product(x_KMP: Tensor, y_LMP: Tensor) -> Tensor:
    views, images = x_KMP.shape[:2]
    every = (x_KMP.sum(0) * y_LMP.sum(0)).sum()
    same_view = (x_KMP * y_LMP[:views]).sum()
    return (every - same_view) / (images * views * (len(y_LMP) - 1))
