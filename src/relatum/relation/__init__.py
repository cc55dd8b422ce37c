"""Relational reasoning over pairs of representations: the pairs, the heads that score them, and the loss.

`pairs` lists the pairs, `reference` is the readable specification, `fused` has the mathematics of the fast path
(with passes over pairs by numba in `compiled` or by torch in `chunked`), `heads` the heads of the paper's ablations.
Objectives call `pair_loss`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from relatum.config.methods import RelationalOptions
from relatum.distributed import World
from relatum.errors import unknown
from relatum.kernels import numba_available
from relatum.registry import KERNELS
from relatum.relation.chunked import ChunkedBackend
from relatum.relation.fused import fused_loss
from relatum.relation.heads import DotHead, EncoderHead, make_head, pair_products
from relatum.relation.pairs import Pairs, random_pairs, roll_pairs
from relatum.relation.reference import RelationHead, accuracies, focal_bce, relation_loss
from relatum.relation.split import SPLITTABLE

__all__ = [
    "DotHead",
    "EncoderHead",
    "PairResult",
    "Pairs",
    "RelationHead",
    "choose_backend",
    "focal_bce",
    "make_head",
    "pair_loss",
    "random_pairs",
    "relation_loss",
    "roll_pairs",
    "score",
    "shared_loss",
]


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
    gamma: float = RelationalOptions.gamma,
    focal: bool = RelationalOptions.focal,
    backend: str = "auto",
    reduce: Callable[[Tensor], Tensor] | None = None,
) -> PairResult:
    """Mean loss and accuracies of a head over a list of pairs.

    Args:
        head: a `RelationHead`, `DotHead` or `EncoderHead`.
        features: (N, d); row k * M + m is view k of image m.
        pairs: the pairs of rows to compare.
        gamma: focal exponent; 0 keeps the factor ½.
        focal: False is plain cross-entropy, with no weight.
        backend: `numba` (float32 on the CPU; cat, sum, mean), `torch` (chunked, anywhere), `reference` (materialises
            every pair), or `auto`: numba if it supports the head, else torch.
        reduce: for synchronised batch-norm: sums a small float64 vector across ranks. A `RelationHead` in training
            calls it once in forward and once in backward; gradients are then those of the sum of all ranks' losses.
            Heads without statistics over pairs do not need it.
    """
    backend = choose_backend(head, features, backend)
    if isinstance(head, DotHead):
        logits = _product_logits(head, features, pairs, backend)
    elif backend == "reference":
        if reduce is not None:
            raise ValueError("the reference backend has no statistics across ranks: use backend 'torch' or 'numba'")
        return _result(*relation_loss(features, pairs, head, gamma, focal), pairs)
    else:
        assert isinstance(head, RelationHead)
        return PairResult(*fused_loss(head, features, pairs, gamma, focal, _backend_class(backend), reduce))
    targets = pairs.tensors(features.device)[2].to(logits.dtype)
    return _result(focal_bce(logits, targets, gamma, focal).mean(), logits, pairs)


def shared_loss(
    head: nn.Module,
    features: Tensor,
    pairs: Pairs,
    world: World,
    *,
    gamma: float,
    focal: bool,
    backend: str,
) -> PairResult:
    """`pair_loss` by several processes that hold the same features: each walks its share of the pairs.

    The mean over processes of the returned losses is the loss; accuracies are those over all pairs.
    """
    backend = choose_backend(head, features, backend)
    alone = world.size == 1 or backend == "reference" or isinstance(head, DotHead) or len(pairs) < world.size
    if alone:
        return pair_loss(head, features, pairs, gamma=gamma, focal=focal, backend=backend)
    part = pairs.part(world.rank, world.size)
    result = pair_loss(head, features, part, gamma=gamma, focal=focal, backend=backend, reduce=world.sum)
    positives, negatives = part.num_positives, len(part) - part.num_positives
    right = torch.stack(
        [result.positive_accuracy.nan_to_num() * positives, result.negative_accuracy.nan_to_num() * negatives]
    )
    right = world.sum(right)
    counts = right.new_tensor([pairs.num_positives, len(pairs) - pairs.num_positives])
    return PairResult(result.loss * (world.size * len(part) / len(pairs)), right.sum() / len(pairs), *(right / counts))


def choose_backend(head: nn.Module, features: Tensor, backend: str = "auto") -> str:
    """The backend for this head and these features, with `auto` resolved: `numba`, `torch` or `reference`."""
    if backend not in KERNELS:
        raise unknown("backend", backend, KERNELS)
    if backend in ("torch", "reference"):
        return backend
    if not isinstance(head, RelationHead):
        return "torch" if isinstance(head, DotHead) else "reference"
    suits = (
        features.device.type == "cpu"
        and features.dtype != torch.float64
        and head.linear1.weight.dtype == torch.float32
        and head.aggregation in SPLITTABLE
    )
    if backend == "numba" and not suits:
        raise ValueError("the numba kernels serve float32 on the CPU with cat, sum or mean: use backend 'torch'")
    return "numba" if suits and numba_available() else "torch"


def score(head: nn.Module, z_i: Tensor, z_j: Tensor, symmetric: bool = False) -> Tensor:
    """(P,) relation scores in [0, 1], sigmoid of the logit, with the head in eval mode.

    With the aggregation `cat` a score depends on the order of its arguments; `symmetric` averages both orders.
    """
    training = head.training
    head.eval()
    try:
        scores = torch.sigmoid(head(z_i, z_j))
        return (scores + torch.sigmoid(head(z_j, z_i))) / 2 if symmetric else scores
    finally:
        head.train(training)


def _product_logits(head: DotHead, features: Tensor, pairs: Pairs, backend: str) -> Tensor:
    with torch.autocast(features.device.type, enabled=False):
        rows = head.encode(features.to(torch.promote_types(features.dtype, torch.float32)))
        if backend != "reference":
            return pair_products(rows, pairs)
        left, right, _ = pairs.tensors(features.device)
        return (rows[left] * rows[right]).sum(dim=1)


def _result(loss: Tensor, logits: Tensor, pairs: Pairs) -> PairResult:
    return PairResult(loss, *accuracies(logits, pairs.tensors(logits.device)[2]))


def _backend_class(name: str) -> Callable[..., ChunkedBackend]:
    if name == "torch":
        return ChunkedBackend
    from relatum.relation.compiled import NumbaBackend

    return NumbaBackend  # type: ignore[return-value]
