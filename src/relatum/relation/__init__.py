"""Relational reasoning over pairs of representations: who is compared, by what, at what loss.

`pairs` makes the list, `reference` is the readable specification, and `pair_loss` is what objectives call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor, nn

from relatum.relation.pairs import Pairs, random_pairs, roll_pairs
from relatum.relation.reference import RelationHead, accuracies, focal_bce, relation_loss

__all__ = [
    "PairResult",
    "Pairs",
    "RelationHead",
    "focal_bce",
    "pair_loss",
    "random_pairs",
    "relation_loss",
    "roll_pairs",
]

BACKENDS = ("auto", "numba", "torch", "reference")


class PairResult(NamedTuple):
    """The loss, with its gradient, and detached scalars on the features' device (no host sync).

    The accuracy on positives or on negatives is NaN where the list has none of them.
    """

    loss: Tensor
    accuracy: Tensor
    positive_accuracy: Tensor
    negative_accuracy: Tensor


def pair_loss(
    head: nn.Module,
    features: Tensor,
    pairs: Pairs,
    *,
    gamma: float = 2.0,
    focal: bool = True,
    backend: str = "auto",
    reduce: Callable[[Tensor], Tensor] | None = None,
) -> PairResult:
    """Mean loss and accuracies of a head over a list of pairs."""
    loss, logits = relation_loss(features, pairs, head, gamma, focal)
    return PairResult(loss, *accuracies(logits, pairs.tensors(features.device)[2]))
