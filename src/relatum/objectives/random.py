"""Random weights: the paper's lower bound. Nothing is trained; the backbone is evaluated as it was initialised."""

from __future__ import annotations

from torch import Tensor, nn

from relatum.objectives.base import Metrics, Objective
from relatum.objectives.batch import ViewsLike


class RandomWeights(Objective):
    """An untrained backbone.

    No view ever passes through it in training mode, so its batch-norm statistics stay at 0 and 1: the paper's 13.53 %
    of ResNet-56 depends on that.
    """

    def __init__(self, backbone: nn.Module, num_features: int) -> None:
        super().__init__(backbone, num_features)

    def forward(self, batch: ViewsLike) -> tuple[Tensor, Metrics]:
        """Refuses: there is nothing to train."""
        raise ValueError("random weights are not trained: there is no loss.")
