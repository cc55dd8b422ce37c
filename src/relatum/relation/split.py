"""Splitting the first layer: for cat, sum and mean, W u = W₁z_left + W₂z_right, once per row and not once per pair.

Shape letters: N rows, d feature size, H hidden units, S sides (2 for cat; 1 for sum and mean, which share weights).
"""

from __future__ import annotations

import torch
from torch import Tensor

SPLITTABLE = ("cat", "sum", "mean")


def split_weight(weight: Tensor, aggregation: str) -> Tensor:
    """(S, H, d) what each side of a pair is multiplied with."""
    if aggregation == "cat":
        return torch.stack(weight.chunk(2, dim=1))
    return weight[None] * (0.5 if aggregation == "mean" else 1.0)


def join_gradient(gradient: Tensor, aggregation: str) -> Tensor:
    """The gradient of the layer's weight from that of `split_weight`."""
    if aggregation == "cat":
        return torch.cat(gradient.unbind(), dim=1)
    return gradient[0] * (0.5 if aggregation == "mean" else 1.0)


def join_means(means: Tensor, aggregation: str) -> Tensor:
    """The mean over pairs of the aggregated input from those of its left and right rows, (2, d)."""
    if aggregation == "cat":
        return means.flatten()
    return means.sum(dim=0) * (0.5 if aggregation == "mean" else 1.0)


def side_constants(vector: Tensor, sides: int) -> Tensor:
    """(S, 1, H) what to add to the rows of each side so that a pair's sum gains `vector`."""
    if sides == 1:
        return (vector * 0.5)[None, None]
    return torch.stack([vector, torch.zeros_like(vector)])[:, None]
