"""BYOL (Grill et al. 2020): predict the projection that a slowly moving copy of the network gives of another view.

Shape letters: K views, M images, P size of the projection. Row k·M + m is view k of image m.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from relatum.config.modern_methods import BYOLOptions
from relatum.config.settings import check
from relatum.objectives.agreement import mean_cosine
from relatum.objectives.base import Metrics, Objective, by_view, mlp_head, single
from relatum.objectives.batch import ViewsLike
from relatum.objectives.momentum import cosine_momentum, follow, frozen_copy


class BYOL(Objective):
    """2 − 2·cos(q(z_a), z'_b), averaged over images and ordered pairs a ≠ b of views.

    q is the predictor; z' comes from the target network, whose weights are an exponential moving average of the
    online backbone and projection head. With K = 2 this is half of the paper's symmetric loss, which sums both orders.

    Args:
        backbone: any module that maps (N, C, H, W) to (N, d).
        num_features: d.
        momentum: of the target network at the first step; it rises to 1 along a cosine.
        hidden: hidden units of the projection head and of the predictor.
        projection: P.
    """

    min_views = 2
    min_images = 2  # the heads' batch-norm needs two rows

    def __init__(
        self,
        backbone: nn.Module,
        num_features: int,
        *,
        momentum: float = BYOLOptions.momentum,
        hidden: int = BYOLOptions.hidden,
        projection: int = BYOLOptions.projection,
    ) -> None:
        super().__init__(backbone, num_features)
        options = check(BYOLOptions(momentum=momentum, hidden=hidden, projection=projection))
        self.momentum = options.momentum
        self.head = mlp_head(num_features, options.hidden, options.projection)
        self.predictor = mlp_head(options.projection, options.hidden, options.projection)
        self.target_backbone, self.target_head = frozen_copy(backbone), frozen_copy(self.head)

    def encoders(self) -> list[nn.Module]:
        """The backbone and its moving average."""
        return [self.backbone, self.target_backbone]

    def forward(self, batch: ViewsLike) -> tuple[Tensor, Metrics]:
        """The loss, and the mean cosine between predictions and targets."""
        batch = self.as_batch(batch)
        views = len(batch.views)
        predictions = single(self.predictor(self.head(self.encode(batch))))
        with torch.no_grad():
            targets = single(self.target_head(self.encode(batch, self.target_backbone)))
        similarity = mean_cosine(by_view(predictions, views), by_view(targets, views))
        return 2 - 2 * similarity, {"similarity": similarity.detach()}

    def after_step(self, step: int, total_steps: int) -> None:
        """The target network follows the online one."""
        momentum = cosine_momentum(self.momentum, step, total_steps)
        follow(self.target_backbone, self.backbone, momentum)
        follow(self.target_head, self.head, momentum)
