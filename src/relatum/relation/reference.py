"""The relation head and its loss in plain torch: the specification that every kernel is tested against.

Two representations are aggregated, a small network gives one logit, and the logit is scored by binary cross-entropy,
weighted (focally) towards the pairs that are still uncertain. Here every pair is materialised; nothing is optimised.

Shape letters: N rows of features (K * M), d feature size, P pairs.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from relatum.config.methods import RelationalOptions
from relatum.config.settings import check, choices
from relatum.errors import unknown
from relatum.relation.pairs import Pairs


def aggregate(left: Tensor, right: Tensor, aggregation: str) -> Tensor:
    """Join two (P, d) tensors of representations: `cat` gives (P, 2d), the others (P, d)."""
    if aggregation == "cat":
        return torch.cat([left, right], dim=1)
    if aggregation == "sum":
        return left + right
    if aggregation == "mean":
        return (left + right) * 0.5
    if aggregation == "max":
        return torch.maximum(left, right)
    raise unknown("aggregation", aggregation, choices(RelationalOptions, "aggregation"))


class RelationHead(nn.Module):
    """aggregate → Linear → BatchNorm1d → LeakyReLU(.01) → Linear(1): a logit for each pair.

    Args:
        num_features: d, the size of a representation.
        hidden: hidden units.
        aggregation: `cat`, `sum`, `mean` or `max`.
    """

    slope = 0.01

    def __init__(
        self,
        num_features: int,
        hidden: int = RelationalOptions.hidden,
        aggregation: str = RelationalOptions.aggregation,
    ) -> None:
        super().__init__()
        check(RelationalOptions(hidden=hidden, aggregation=aggregation))
        self.aggregation = aggregation
        self.linear1 = nn.Linear(num_features * (2 if aggregation == "cat" else 1), hidden)
        self.bn1 = nn.BatchNorm1d(hidden)
        self.linear2 = nn.Linear(hidden, 1)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """(P,) logits of the pairs (left[p], right[p]); computed in the parameters' own precision, autocast or not."""
        dtype = self.linear1.weight.dtype
        with torch.autocast(left.device.type, enabled=False):
            joined = aggregate(left.to(dtype), right.to(dtype), self.aggregation)
            hidden = F.leaky_relu(self.bn1(self.linear1(joined)), self.slope)
            return self.linear2(hidden).squeeze(1)  # type: ignore[no-any-return]


def focal_bce(
    logits: Tensor, targets: Tensor, gamma: float = RelationalOptions.gamma, focal: bool = RelationalOptions.focal
) -> Tensor:
    """(P,) cross-entropy of each pair times w = ½(1 - p_t)^γ; the gradient flows through the weight too.

    With the margin m = logit for positives and -logit for negatives, cross-entropy is -log σ(m) and 1 - p_t = σ(-m).
    Both are taken through log σ, so logits of ±100 neither overflow nor lose their gradient.

    Args:
        logits: (P,) any real numbers.
        targets: (P,) 0 or 1.
        gamma: focal exponent; 0 keeps the factor ½.
        focal: False is plain cross-entropy, with no weight at all.
    """
    margin = logits * (2.0 * targets - 1.0)
    entropy = -F.logsigmoid(margin)
    if not focal:
        return entropy
    return 0.5 * torch.exp(gamma * F.logsigmoid(-margin)) * entropy


def relation_loss(
    features: Tensor,
    pairs: Pairs,
    head: nn.Module,
    gamma: float = RelationalOptions.gamma,
    focal: bool = RelationalOptions.focal,
) -> tuple[Tensor, Tensor]:
    """Mean loss over all pairs, and the (P,) logits.

    Args:
        features: (N, d); row k * M + m is view k of image m.
        pairs: the pairs of rows to compare.
        head: maps two (P, d) tensors to (P,) logits.
        gamma: focal exponent.
        focal: False is plain cross-entropy.
    """
    if len(features) != pairs.rows:
        raise ValueError(f"the pair list refers to {pairs.rows} rows, but there are {len(features)} rows of features")
    left, right, targets = pairs.tensors(features.device)
    logits = head(features[left], features[right])
    with torch.autocast(features.device.type, enabled=False):
        if logits.dtype in (torch.float16, torch.bfloat16):
            logits = logits.float()
        return focal_bce(logits, targets.to(logits.dtype), gamma, focal).mean(), logits


def accuracies(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The fraction of pairs classified correctly: of all, of positives, of negatives. A logit of 0 is "different"."""
    positives = targets > 0.5
    correct = (logits.detach() > 0) == positives
    right_positives, right_negatives = (correct & positives).sum(), (correct & ~positives).sum()
    num_positives = positives.sum()
    num_negatives = positives.numel() - num_positives
    return correct.float().mean(), right_positives / num_positives, right_negatives / num_negatives
