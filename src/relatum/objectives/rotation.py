"""RotationNet (Gidaris et al. 2018): which of four quarter turns was applied to a view?"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from relatum.config import Recipe
from relatum.errors import InputError
from relatum.objectives.base import Metrics, Objective, accuracy, single
from relatum.objectives.batch import Batch, ViewsLike
from relatum.system.text import counted
from relatum.views import POLICIES


class RotationNet(Objective):
    """Predicts the turn of each view; the targets are read from the parameters of the views.

    With the policy `rotation` and K = 4 every image appears in all four rotations (the paper's 128 × 4); with
    `rotation-study` each of K augmented views has a separate random turn.

    Args:
        backbone: any module that maps (N, C, H, W) to (N, d).
        num_features: d.
    """

    def __init__(self, backbone: nn.Module, num_features: int) -> None:
        super().__init__(backbone, num_features)
        self.classifier = nn.Linear(num_features, 4)

    @classmethod
    def check(cls, recipe: Recipe) -> None:
        """The four turns must be equally likely: with fewer of them the task is smaller, with one there is none."""
        super().check(recipe)
        turn = POLICIES[recipe.views.policy].turn
        if turn == "none" or (turn == "view" and recipe.views.number % 4):
            raise InputError(
                f"{recipe.method} needs the four rotations equally often, which {counted(recipe.views.number, 'view')}"
                f" of the policy '{recipe.views.policy}' do not give. Use --views 4 with views.policy=rotation, or"
                " --set views.policy=rotation-study, which takes any number of views."
            )

    def forward(self, batch: ViewsLike) -> tuple[Tensor, Metrics]:
        """Cross-entropy over all K·M views, and the share of turns recognised."""
        batch = self.as_batch(batch)
        turns = self.gather(rotation_targets(batch), batch)
        logits = single(self.classifier(self.encode(batch)))
        return F.cross_entropy(logits, turns), {"accuracy": accuracy(logits, turns)}


def rotation_targets(batch: Batch) -> Tensor:
    """The quarter turns of all views, (K·M,), on the device of the views."""
    if batch.params is None:
        raise ValueError(
            "RotationNet reads its targets from the parameters of the views: "
            "pass a Batch whose `params` has `turns` (0 to 3, one per view), not bare views."
        )
    turns = torch.as_tensor(batch.params.turns)
    if turns.numel() != batch.views.shape[0] * batch.views.shape[1]:
        raise ValueError(f"{turns.numel()} turns for {tuple(batch.views.shape[:2])} views: one is needed for each.")
    return turns.to(batch.views.device, torch.int64)
