"""`World`: the processes that share a mini-batch, and the operations across them.

Process r of R takes the images r, r + R, r + 2R, ... of every mini-batch.

Shape letters: K views, M images of the whole mini-batch, m of them in this process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed


@dataclass(frozen=True)
class World:
    """The place of this process among those that share a mini-batch.

    Attributes:
        rank: the number of this process.
        size: how many processes there are.
    """

    rank: int = 0
    size: int = 1

    def share(self, images: int) -> int:
        """How many of a mini-batch's `images` this process holds."""
        return len(range(self.rank, images, self.size))

    def sum(self, x: Tensor) -> Tensor:
        """The sum of `x` over all processes, without a gradient. `x` is left as it is."""
        if self.size == 1:
            return x
        total = x.detach().clone()
        distributed.all_reduce(total)
        return total

    def mean(self, x: Tensor) -> Tensor:
        """The mean of `x` over all processes, without a gradient."""
        return self.sum(x) / self.size

    def gather(self, rows: Tensor, images: int) -> Tensor:
        """The rows of all processes, in the order that a single process would have; gradients flow back.

        Args:
            rows: (K·m, ...) of this process; row k·m + i is view k of its image i.
            images: M.

        Returns:
            (K·M, ...); row k·M + n is view k of image n of the mini-batch.
        """
        if self.size == 1:
            return rows
        gather: Any = _Gather.apply
        gathered: Tensor = gather(rows, images, self)
        return gathered

    def own_rows(self, rows: Tensor, views: int) -> Tensor:
        """The rows of this process among the (K·M, ...) rows of the whole mini-batch: the inverse of `gather`."""
        if self.size == 1:
            return rows
        by_view = rows.reshape(views, -1, *rows.shape[1:])
        return by_view[:, self.rank :: self.size].flatten(0, 1)


ALONE = World()


def current() -> World:
    """The world of this process: that of torch.distributed where it was set up, else this process alone."""
    if distributed.is_available() and distributed.is_initialized():
        return World(distributed.get_rank(), distributed.get_world_size())
    return ALONE


class _Gather(torch.autograd.Function):
    """Gather forward. Backward adds up the gradients of all processes and takes the rows of this one."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, images: int, world: World) -> Tensor:
        share, most = world.share(images), -(-images // world.size)
        views = _views(rows, images, share, world)
        padded = rows.new_zeros(views, most, *rows.shape[1:])
        padded[:, :share] = rows.reshape(views, share, *rows.shape[1:])
        parts = [torch.empty_like(padded) for _ in range(world.size)]
        distributed.all_gather(parts, padded)
        # (K, most, R, ...): image i of process r is image i·R + r of the mini-batch; the padding comes last.
        whole = torch.stack(parts, dim=2).flatten(1, 2)[:, :images].flatten(0, 1)
        ctx.world, ctx.views = world, views
        return whole.contiguous()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        return ctx.world.own_rows(ctx.world.sum(gradient.contiguous()), ctx.views), None, None


def _views(rows: Tensor, images: int, share: int, world: World) -> int:
    """K: from the rows of this process, or from another process where this one has no image."""
    views = len(rows) // share if share else 0
    if images < world.size:  # every process takes part, so that none waits
        largest = torch.tensor(views, device=rows.device)
        distributed.all_reduce(largest, distributed.ReduceOp.MAX)
        views = int(largest)
    return views
