"""VICReg (Bardes et al. 2022): variance, invariance and covariance regularisation.

Shape letters: K views, M images, P size of the projection. Row k·M + m is view k of image m.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from relatum.config.modern_methods import VICRegOptions
from relatum.config.settings import check
from relatum.objectives.base import Metrics, Objective, by_view, mlp_head, single
from relatum.objectives.batch import ViewsLike

_EPS = 1e-4  # added to variances before the square root


class VICReg(Objective):
    """λ·s(a, b) + μ·(v_a + v_b)/2 + ν·(c_a + c_b), averaged over pairs of views, as in the authors' code.

    s is the mean squared difference of two views' projections, v the mean over coordinates of max(0, 1 − std), and
    c the sum of squared covariances of different coordinates over P. The paper's formula sums s over coordinates and
    does not halve v; its weights (25, 25, 1) are those of the code.

    Args:
        backbone: any module that maps (N, C, H, W) to (N, d).
        num_features: d.
        invariance: λ.
        variance: μ.
        covariance: ν.
        hidden: hidden units of the projection head (expander).
        projection: P.
        layers: linear layers of the projection head.
    """

    min_views = 2
    min_images = 2  # a variance needs two images

    def __init__(
        self,
        backbone: nn.Module,
        num_features: int,
        *,
        invariance: float = VICRegOptions.invariance,
        variance: float = VICRegOptions.variance,
        covariance: float = VICRegOptions.covariance,
        hidden: int = VICRegOptions.hidden,
        projection: int = VICRegOptions.projection,
        layers: int = VICRegOptions.layers,
    ) -> None:
        super().__init__(backbone, num_features)
        options = check(
            VICRegOptions(
                invariance=invariance,
                variance=variance,
                covariance=covariance,
                hidden=hidden,
                projection=projection,
                layers=layers,
            )
        )
        self.weights = (options.invariance, options.variance, options.covariance)
        self.head = mlp_head(num_features, options.hidden, options.projection, options.layers)

    def forward(self, batch: ViewsLike) -> tuple[Tensor, Metrics]:
        """The loss, and its three terms without their weights."""
        batch = self.as_batch(batch)
        z = self.head(self.encode(batch))
        terms = vicreg_terms(by_view(single(z), len(batch.views)))
        loss = sum((weight * term for weight, term in zip(self.weights, terms, strict=True)), terms[0].new_zeros(()))
        names = ("invariance", "variance", "covariance")
        return loss, {name: term.detach() for name, term in zip(names, terms, strict=True)}


def vicreg_terms(z_KMP: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Invariance s, variance v and covariance c_a + c_b, each averaged over pairs of views.

    The mean over pairs of (z_a − z_b)² is 2K/(K − 1) times the mean over views of (z_k − mean of views)².
    """
    with torch.autocast(z_KMP.device.type, enabled=False):
        views, images, size = z_KMP.shape
        spread = (z_KMP - z_KMP.mean(0)).square().mean()
        centred = z_KMP - z_KMP.mean(1, keepdim=True)
        deviation = (centred.square().sum(1) / (images - 1) + _EPS).sqrt()
        covariance = centred.transpose(1, 2) @ centred / (images - 1)
        off = covariance.square().sum((1, 2)) - covariance.diagonal(dim1=1, dim2=2).square().sum(1)
        return 2 * views / (views - 1) * spread, F.relu(1 - deviation).mean(), 2 * off.mean() / size
