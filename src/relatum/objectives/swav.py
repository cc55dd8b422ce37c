"""SwAV (Caron et al. 2020): predict the cluster of another view; the Sinkhorn algorithm balances the clusters.

The authors' queue of past features, for mini-batches that are small beside the number of prototypes, is left out.
Shape letters: K views, L ≥ K views with the small ones, M images, C prototypes. Row k·M + m is view k of image m.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from relatum.config.modern_methods import SwAVOptions
from relatum.config.settings import check
from relatum.objectives.agreement import mean_cross_entropy
from relatum.objectives.base import Metrics, Objective, by_view, mlp_head
from relatum.objectives.batch import ViewsLike
from relatum.objectives.prototypes import Prototypes


class SwAV(Objective):
    """−Σ_c q_a,c log softmax(z_b·p / t)_c, averaged over images and pairs of a view with a code and another view.

    The codes q_a of each of the K views come from the Sinkhorn algorithm over the mini-batch; small views predict
    codes and have none.

    Args:
        backbone: any module that maps (N, C, H, W) to (N, d).
        num_features: d.
        prototypes: C.
        temperature: t.
        epsilon: entropic regularisation of the codes.
        iterations: of the Sinkhorn algorithm.
        freeze_epochs: epochs at the start in which the prototypes are not trained.
        hidden: hidden units of the projection head.
        projection: size of the projection.
    """

    min_views = 2
    min_images = 2  # the head's batch-norm needs two rows
    uses_small_views = True

    def __init__(
        self,
        backbone: nn.Module,
        num_features: int,
        *,
        prototypes: int = SwAVOptions.prototypes,
        temperature: float = SwAVOptions.temperature,
        epsilon: float = SwAVOptions.epsilon,
        iterations: int = SwAVOptions.iterations,
        freeze_epochs: int = SwAVOptions.freeze_epochs,
        hidden: int = SwAVOptions.hidden,
        projection: int = SwAVOptions.projection,
    ) -> None:
        super().__init__(backbone, num_features)
        options = check(
            SwAVOptions(
                prototypes=prototypes,
                temperature=temperature,
                epsilon=epsilon,
                iterations=iterations,
                freeze_epochs=freeze_epochs,
                hidden=hidden,
                projection=projection,
            )
        )
        self.temperature, self.epsilon, self.iterations = options.temperature, options.epsilon, options.iterations
        self.freeze_epochs, self.skips_parameters = options.freeze_epochs, options.freeze_epochs > 0
        self.head = mlp_head(num_features, options.hidden, options.projection)
        self.prototypes = Prototypes(options.projection, options.prototypes)
        self.chance_loss = math.log(options.prototypes)

    def forward(self, batch: ViewsLike) -> tuple[Tensor, Metrics]:
        """The loss, and how often the nearest prototype of the second view is the likeliest of the first one's code."""
        batch = self.as_batch(batch)
        views, frozen = len(batch.views), batch.epoch < self.freeze_epochs
        scores = self.prototypes(self.head(self.encode_all(batch)), frozen=frozen)
        scores_LMC = by_view(scores, batch.all_views)
        with torch.no_grad():
            codes_KMC = torch.stack([sinkhorn(s, self.epsilon, self.iterations) for s in scores_LMC[:views].detach()])
            accuracy = (scores_LMC[1].argmax(1) == codes_KMC[0].argmax(1)).float().mean()
        loss = mean_cross_entropy(codes_KMC, F.log_softmax(scores_LMC / self.temperature, dim=2))
        return loss, {"accuracy": accuracy}


@torch.no_grad()
def sinkhorn(scores_MC: Tensor, epsilon: float, iterations: int) -> Tensor:
    """Codes: exp(scores / ε) scaled so that prototypes are used equally and the codes of each image sum to 1.

    In logarithms: in float32, exp(scores / ε) is zero for whole images or prototypes if ε is below about 0.01.
    """
    log_q = scores_MC / epsilon
    for _ in range(iterations):
        log_q = log_q.log_softmax(0)
        log_q = log_q.log_softmax(1)
    return log_q.exp()
