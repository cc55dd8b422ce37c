"""EMP-SSL (Tong et al. 2023): extreme multi-patch learning. Many views agree with their mean, and none collapses.

Shape letters: K views, M images, P size of the projection. Row k·M + m is view k of image m.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from relatum.config.modern_methods import EMPOptions
from relatum.config.settings import check
from relatum.objectives.base import Metrics, Objective, by_view, mlp_head, single
from relatum.objectives.batch import ViewsLike


class EMPSSL(Objective):
    """−(1/K) Σ_k [R(Z_k) + λ·D(Z_k, mean of Z)], on projections of unit length.

    R(Z) = ½ log det(I + P/(M·ε²) ZᵀZ) is the total coding rate of one view of all images, and D the mean cosine
    between projections and the mean over the image's views.

    Args:
        backbone: any module that maps (N, C, H, W) to (N, d).
        num_features: d.
        similarity: λ.
        epsilon: ε².
        hidden: hidden units of the projection head.
        projection: P.
        layers: linear layers of the projection head.
    """

    min_views = 2
    min_images = 2  # the head's batch-norm needs two rows

    def __init__(
        self,
        backbone: nn.Module,
        num_features: int,
        *,
        similarity: float = EMPOptions.similarity,
        epsilon: float = EMPOptions.epsilon,
        hidden: int = EMPOptions.hidden,
        projection: int = EMPOptions.projection,
        layers: int = EMPOptions.layers,
    ) -> None:
        super().__init__(backbone, num_features)
        options = check(
            EMPOptions(similarity=similarity, epsilon=epsilon, hidden=hidden, projection=projection, layers=layers)
        )
        self.similarity, self.epsilon = options.similarity, options.epsilon
        self.head = mlp_head(num_features, options.hidden, options.projection, options.layers)

    def forward(self, batch: ViewsLike) -> tuple[Tensor, Metrics]:
        """The loss, and its two terms."""
        batch = self.as_batch(batch)
        z = by_view(F.normalize(single(self.head(self.encode(batch))), dim=1), len(batch.views))
        rate, similarity = coding_rate(z, self.epsilon).mean(), F.cosine_similarity(z, z.mean(0)[None], dim=2).mean()
        loss = -(rate + self.similarity * similarity)
        return loss, {"coding_rate": rate.detach(), "similarity": similarity.detach()}


def coding_rate(z_KMP: Tensor, epsilon: float) -> Tensor:
    """R of each view, (K,): half the log-determinant of I + P/(M·ε²) ZᵀZ, by its Cholesky factor."""
    with torch.autocast(z_KMP.device.type, enabled=False):
        images, size = z_KMP.shape[1:]
        gram_KPP = z_KMP.transpose(1, 2) @ z_KMP * (size / (images * epsilon))
        identity = torch.eye(size, dtype=z_KMP.dtype, device=z_KMP.device)
        # Unlike `cholesky`, `cholesky_ex` gives NaN for NaN, which the training loop explains, and a GPU need not wait.
        factor_KPP = torch.linalg.cholesky_ex(gram_KPP + identity).L
        return factor_KPP.diagonal(dim1=1, dim2=2).log().sum(1)
