"""Barlow Twins (Zbontar et al. 2021): views agree in each coordinate, and coordinates do not repeat one another.

Shape letters: K views, M images, P size of the projection. Row k·M + m is view k of image m.
"""

from __future__ import annotations

from itertools import combinations

import torch
from torch import Tensor, nn

from relatum.config.modern_methods import BarlowOptions
from relatum.config.settings import check
from relatum.objectives.base import Metrics, Objective, by_view, mlp_head, single
from relatum.objectives.batch import ViewsLike

_EPS = 1e-5  # of the batch-norm without scale and shift that standardises the projections


class BarlowTwins(Objective):
    """Σ_i (1 − C_ii)² + λ Σ_{i ≠ j} C_ij², averaged over pairs of views; C is their cross-correlation over the batch.

    The loss is the same for both orders of two views, so the mean over unordered pairs is the mean over ordered ones.

    Args:
        backbone: any module that maps (N, C, H, W) to (N, d).
        num_features: d.
        redundancy: λ.
        hidden: hidden units of the projection head.
        projection: P.
        layers: linear layers of the projection head.
    """

    min_views = 2
    min_images = 2  # a correlation needs two images

    def __init__(
        self,
        backbone: nn.Module,
        num_features: int,
        *,
        redundancy: float = BarlowOptions.redundancy,
        hidden: int = BarlowOptions.hidden,
        projection: int = BarlowOptions.projection,
        layers: int = BarlowOptions.layers,
    ) -> None:
        super().__init__(backbone, num_features)
        options = check(BarlowOptions(redundancy=redundancy, hidden=hidden, projection=projection, layers=layers))
        self.redundancy = options.redundancy
        self.head = mlp_head(num_features, options.hidden, options.projection, options.layers)

    def forward(self, batch: ViewsLike) -> tuple[Tensor, Metrics]:
        """The loss, and the mean of the diagonal of the cross-correlation."""
        batch = self.as_batch(batch)
        z = self.head(self.encode(batch))
        loss, agreement = barlow_loss(by_view(single(z), len(batch.views)), self.redundancy)
        return loss, {"agreement": agreement}


def barlow_loss(z_KMP: Tensor, redundancy: float) -> tuple[Tensor, Tensor]:
    """The loss over all pairs of views, and the mean correlation of equal coordinates, detached."""
    with torch.autocast(z_KMP.device.type, enabled=False):
        centred = z_KMP - z_KMP.mean(1, keepdim=True)
        z_KMP = centred * (centred.square().mean(1, keepdim=True) + _EPS).rsqrt()
        losses, diagonals = [], []
        for a, b in combinations(z_KMP, 2):
            correlation = a.T @ b / len(a)
            diagonal = correlation.diagonal()
            off = correlation.square().sum() - diagonal.square().sum()
            losses.append((1 - diagonal).square().sum() + redundancy * off)
            diagonals.append(diagonal.detach().mean())
        return torch.stack(losses).mean(), torch.stack(diagonals).mean()
