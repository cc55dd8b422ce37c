"""The ablated heads of the paper (table "head"): a dot product in place of the relation module.

`DotHead` takes ⟨z_i, z_j⟩ as the logit; `EncoderHead` first sends each representation through an MLP d → 256 → 64, as
SimCLR's projection head. Both encode rows, not pairs; the products over a list of pairs are taken chunk by chunk, so
that nothing of size P · d is stored. `make_head` is the table of heads by name.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from relatum.config.methods import RelationalOptions, SimCLROptions
from relatum.config.settings import choices
from relatum.errors import unknown
from relatum.relation.chunked import CHUNK, add_rows
from relatum.relation.pairs import Pairs
from relatum.relation.reference import RelationHead

HEADS = choices(RelationalOptions, "head")


class DotHead(nn.Module):
    """⟨z_i, z_j⟩ as the logit of a pair; no parameters."""

    def encode(self, rows: Tensor) -> Tensor:
        """(N, e) what the products are taken of."""
        return rows

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """(P,) logits of the pairs (left[p], right[p])."""
        return (self.encode(left) * self.encode(right)).sum(dim=1)


class EncoderHead(DotHead):
    """⟨e(z_i), e(z_j)⟩ with e = Linear → BatchNorm1d → LeakyReLU → Linear; batch-norm sees rows, not pairs.

    Args:
        num_features: d, the size of a representation.
        hidden: hidden units.
        projection: size of the encoding.
    """

    def __init__(
        self, num_features: int, hidden: int = RelationalOptions.hidden, projection: int = SimCLROptions.projection
    ) -> None:
        super().__init__()
        self.linear1 = nn.Linear(num_features, hidden)
        self.bn1 = nn.BatchNorm1d(hidden)
        self.linear2 = nn.Linear(hidden, projection)

    def encode(self, rows: Tensor) -> Tensor:
        """(N, projection) encodings."""
        rows = rows.to(self.linear1.weight.dtype)
        return self.linear2(F.leaky_relu(self.bn1(self.linear1(rows)), RelationHead.slope))  # type: ignore[no-any-return]


def make_head(
    name: str,
    num_features: int,
    hidden: int = RelationalOptions.hidden,
    aggregation: str = RelationalOptions.aggregation,
) -> nn.Module:
    """A head by its name in a recipe: `relation`, `dot` or `encoder`."""
    if name == "relation":
        return RelationHead(num_features, hidden, aggregation)
    if name == "dot":
        return DotHead()
    if name == "encoder":
        return EncoderHead(num_features, hidden)
    raise unknown("head", name, HEADS)


def pair_products(rows: Tensor, pairs: Pairs) -> Tensor:
    """(P,) ⟨rows[left], rows[right]⟩ over a list of pairs."""
    if len(rows) != pairs.rows:
        raise ValueError(f"the pair list refers to {pairs.rows} rows, but there are {len(rows)}")
    left, right, _ = pairs.tensors(rows.device)
    return _PairProducts.apply(rows, left, right)  # type: ignore[no-any-return, no-untyped-call]


class _PairProducts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, left: Tensor, right: Tensor) -> Tensor:
        ctx.save_for_backward(rows, left, right)
        chunks = zip(torch.split(left, CHUNK), torch.split(right, CHUNK), strict=True)
        return torch.cat([torch.linalg.vecdot(rows[a], rows[b]) for a, b in chunks])

    @staticmethod
    @once_differentiable  # type: ignore[misc]
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        rows, left, right = ctx.saved_tensors
        gradient = torch.zeros_like(rows)
        for g_chunk, a, b in zip(*(torch.split(t, CHUNK) for t in (g, left, right)), strict=True):
            add_rows(gradient, a, g_chunk[:, None] * rows[b])
            add_rows(gradient, b, g_chunk[:, None] * rows[a])
        return gradient, None, None
