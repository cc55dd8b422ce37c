"""Activation checkpointing: keep only the inputs of a backbone's blocks, and compute the blocks again in backward.

It trades time (one more forward pass, about a third of a step) for memory, and changes no result: batch statistics are
computed again from the same values, and running statistics are updated once, in the first pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from relatum.backbones.blocks import BasicBlock
from relatum.backbones.conv4 import ConvBlock
from relatum.errors import InputError


def attach(network: nn.Module) -> None:
    """Recompute the blocks of a backbone, and the stem of a ResNet, in the backward pass."""
    blocks = [module for module in network.modules() if isinstance(module, BasicBlock | ConvBlock)]
    if not blocks:
        raise InputError(
            "run.recompute: this backbone has no blocks that can be recomputed; only those of relatum have."
        )
    for block in blocks:
        block.forward = _Recomputed(block.forward, partial(_norms, block))  # type: ignore[method-assign]
    first: Any = network
    if isinstance(blocks[0], BasicBlock):  # the stem of Conv-4 is a block
        first.stem = _Recomputed(first.stem, lambda: [first.bn1])


class _Recomputed:
    """A function of one tensor whose intermediate results are not kept for the backward pass."""

    def __init__(self, function: Callable[[Tensor], Tensor], norms: Callable[[], list[_BatchNorm]]) -> None:
        self.function, self.norms = function, norms  # the norms of that moment: they may be replaced by global ones

    def __call__(self, x: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return self.function(x)
        result: Tensor = checkpoint(
            self.function, x, use_reentrant=False, preserve_rng_state=False, context_fn=self._contexts
        )
        return result

    def _contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), _without_tracking(self.norms())


@contextmanager
def _without_tracking(norms: list[_BatchNorm]) -> Iterator[None]:
    """Batch-norms update copies of their running statistics, which are forgotten."""
    buffers = [dict(norm._buffers) for norm in norms]
    for norm in norms:
        norm._buffers.update({name: None if b is None else b.clone() for name, b in norm._buffers.items()})
    try:
        yield
    finally:
        for norm, kept in zip(norms, buffers, strict=True):
            norm._buffers.update(kept)


def _norms(module: nn.Module) -> list[_BatchNorm]:
    return [child for child in module.modules() if isinstance(child, _BatchNorm)]
