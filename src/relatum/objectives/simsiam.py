"""SimSiam (Chen & He 2021): predict the projection of another view; the gradient stops at what is predicted.

Shape letters: K views, M images, P size of the projection. Row k·M + m is view k of image m.
"""

from __future__ import annotations

from torch import Tensor, nn

from relatum.config.modern_methods import SimSiamOptions
from relatum.config.settings import check
from relatum.objectives.agreement import mean_cosine
from relatum.objectives.base import Metrics, Objective, by_view, mlp_head, single
from relatum.objectives.batch import ViewsLike


class SimSiam(Objective):
    """−cos(q(z_a), stop(z_b)), averaged over images and ordered pairs a ≠ b of views.

    As in the paper, the projection head ends with a batch-norm without scale and shift.

    Args:
        backbone: any module that maps (N, C, H, W) to (N, d).
        num_features: d.
        hidden: hidden units of the projection head.
        projection: P.
        predictor: hidden units of the predictor.
    """

    min_views = 2
    min_images = 2  # the heads' batch-norm needs two rows

    def __init__(
        self,
        backbone: nn.Module,
        num_features: int,
        *,
        hidden: int = SimSiamOptions.hidden,
        projection: int = SimSiamOptions.projection,
        predictor: int = SimSiamOptions.predictor,
    ) -> None:
        super().__init__(backbone, num_features)
        options = check(SimSiamOptions(hidden=hidden, projection=projection, predictor=predictor))
        self.head = mlp_head(num_features, options.hidden, options.projection)
        self.head.append(nn.BatchNorm1d(options.projection, affine=False))
        self.predictor = mlp_head(options.projection, options.predictor, options.projection)

    def forward(self, batch: ViewsLike) -> tuple[Tensor, Metrics]:
        """The loss, and the mean cosine between predictions and projections."""
        batch = self.as_batch(batch)
        views = len(batch.views)
        projections = self.head(self.encode(batch))
        predictions = by_view(single(self.predictor(projections)), views)
        similarity = mean_cosine(predictions, by_view(single(projections.detach()), views))
        return -similarity, {"similarity": similarity.detach()}
