"""The baseline for the fused head, simple but efficient: list all pairs, concatenate them, apply an eager head.

It follows the paper's listing: for every two views, slices and a rolled slice are concatenated and appended; then one
`torch.cat`, one pass of the head, one loss over all pairs. Targets depend on K and M alone and are computed once.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from relatum.relation.reference import focal_bce


class PlainHead(nn.Module):
    """Relational loss of concatenated pairs, with the same parameters and the same result as ours.

    Args:
        num_features: d, the size of a representation.
        views: K.
        batch_size: M.
    """

    def __init__(self, num_features: int, views: int, batch_size: int) -> None:
        super().__init__()
        self.views, self.batch_size = views, batch_size
        self.linear1 = nn.Linear(2 * num_features, 256)
        self.bn1 = nn.BatchNorm1d(256)
        self.linear2 = nn.Linear(256, 1)
        block = torch.cat([torch.ones(batch_size), torch.zeros(batch_size)])
        self.register_buffer("targets", block.repeat(views * (views - 1) // 2), persistent=False)

    def aggregate(self, features: Tensor) -> Tensor:
        """(P, 2d) every pair, concatenated."""
        size, shift, pairs = self.batch_size, 1, []
        parts = torch.split(features, size)
        for i in range(self.views):
            for j in range(i + 1, self.views):
                pairs.append(torch.cat([parts[i], parts[j]], dim=1))
                pairs.append(torch.cat([parts[i], torch.roll(parts[j], shift, dims=0)], dim=1))
                shift = shift + 1 if shift + 1 < size else 1
        return torch.cat(pairs)

    def forward(self, features: Tensor) -> Tensor:
        """Mean focal loss over all pairs."""
        hidden = nn.functional.leaky_relu(self.bn1(self.linear1(self.aggregate(features))), 0.01)
        logits = self.linear2(hidden).squeeze(1)
        return focal_bce(logits, self.get_buffer("targets")).mean()
