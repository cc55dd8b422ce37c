"""Batches as a pure function of the step: any step can be computed alone, ahead of time, or again after a resume.

Shape letters: N images in the training set, M in a mini-batch, K views of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from relatum import registry, rng, views
from relatum.config import Recipe
from relatum.config.methods import METHODS
from relatum.data import ImageSet
from relatum.data.stream.images import is_streamed
from relatum.data.stream.order import StreamOrder
from relatum.objectives.batch import Batch
from relatum.training.pixels import PixelSource, StepPixels
from relatum.training.view_sources import Visible, sources


class BatchMaker:
    """Computes the batch of any step of a run.

    Args:
        images: the training set.
        recipe: the complete recipe.
        labels: (N,) labels that training may see (-1 is hidden), or None for none at all.
        uses_labels: whether batches carry them; False leaves them to the choice of sources (semi-supervised).
        min_images: a last mini-batch with fewer images is dropped; any short one where the recipe says `drop_last`.
        rank: this process among `world`; each takes its own part of every mini-batch.
        world: number of processes.
        shared: the processes compute on one mini-batch together (`train.sync = "global"`); otherwise each on its part.
        device: where the views go.
    """

    def __init__(
        self,
        images: ImageSet,
        recipe: Recipe,
        *,
        labels: NDArray[np.int64] | None = None,
        uses_labels: bool = True,
        min_images: int = 1,
        rank: int = 0,
        world: int = 1,
        shared: bool = True,
        device: torch.device | str = "cpu",
    ) -> None:
        self.images, self.recipe = images, recipe
        self.labels = labels if uses_labels else None
        self.rank, self.world, self.shared, self.device = rank, world, shared, torch.device(device)
        policy = registry.find(views.POLICIES, "policy (views.policy):", recipe.views.policy)
        policy = policy.with_strength(recipe.views.strength)
        self.policy = replace(policy, cutout_area=recipe.views.cutout_area or policy.cutout_area)
        self._visible = Visible.of(labels) if labels is not None and METHODS[recipe.method].semi_supervised else None
        full, rest = divmod(len(images), recipe.train.batch_size)
        least = min_images if shared else min_images * world
        self.dropped = rest if recipe.train.drop_last or rest < least else 0
        self.steps_per_epoch = full + (rest > 0 and not self.dropped)
        self.side = recipe.data.side or images.side
        self.mean, self.std = recipe.data.mean or images.mean, recipe.data.std or images.std
        self._orders: dict[int, NDArray[np.int64]] = {}
        self._stream_order: StreamOrder | None = None
        if is_streamed(images.images):
            order = {"seed": recipe.seed, "window": recipe.data.window, "lanes": recipe.data.lanes}
            self._stream_order = StreamOrder(images.images.shard_counts(), **order)
        steps = recipe.train.epochs * self.steps_per_epoch
        self._pixels = PixelSource(images.images, self._sources, steps, self.device)

    def make(self, step: int) -> Batch:
        """The batch of a step, counted from 0 over the whole run."""
        epoch, mini_batch = self._mini_batch(step)
        pixels = self._pixels.get(step)
        indices = pixels.indices
        batch_views, params = self._views(self.policy, epoch, pixels, pixels.sources, self.side)
        labels = None if self.labels is None else torch.from_numpy(self.labels[indices]).to(self.device)
        return Batch(
            views=batch_views,
            params=params,
            indices=torch.from_numpy(indices).to(self.device),
            labels=labels,
            seed=self.recipe.seed,
            epoch=epoch,
            step=step,
            num_images=len(mini_batch) if self.shared else len(indices),
            small_views=self._small_views(epoch, pixels),
        )

    def images_of(self, step: int) -> NDArray[np.int64]:
        """The images of a step over all processes."""
        return self._mini_batch(step)[1]

    def _mini_batch(self, step: int) -> tuple[int, NDArray[np.int64]]:
        """The epoch of a step, and the images of its mini-batch over all processes."""
        epoch, within = divmod(step, self.steps_per_epoch)
        start, stop = within * self.recipe.train.batch_size, (within + 1) * self.recipe.train.batch_size
        if self._stream_order is not None:
            return epoch, self._stream_order(epoch, start, stop)
        return epoch, self._order(epoch)[start:stop]

    def _sources(self, step: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """This process's images of a step, (M,), and the image behind each of their views, (K, M)."""
        epoch, mini_batch = self._mini_batch(step)
        indices, K = mini_batch[self.rank :: self.world], self.recipe.views.number
        return indices, sources(indices, visible=self._visible, seed=self.recipe.seed, epoch=epoch, views=K)

    def _small_views(self, epoch: int, pixels: StepPixels) -> torch.Tensor | None:
        """The small views of multi-crop, (L, M, C, h, w); their numbers continue after the K views."""
        section = self.recipe.views
        if not section.small_number:
            return None
        policy = views.POLICIES[section.small_policy].with_strength(section.strength)
        rows_LM = np.tile(pixels.slots, (section.small_number, 1))
        side = small_side(self.recipe, self.side)
        return self._views(policy, epoch, pixels, rows_LM, side, first=section.number)[0]

    def _views(
        self,
        policy: views.Policy,
        epoch: int,
        pixels: StepPixels,
        rows_KM: NDArray[np.int64],
        side: int,
        first: int = 0,
    ) -> tuple[torch.Tensor, views.ViewParams]:
        """(K, M, C, side, side) views of the given rows and their parameters; view numbers start at `first`."""
        recipe, (height, width) = self.recipe, self.images.images.shape[1:3]
        params = views.sample(
            policy,
            seed=recipe.seed,
            epoch=epoch,
            indices=pixels.indices,
            views=len(rows_KM),
            height=height,
            width=width,
            pad=recipe.data.pad or 0,
            side=side,
            first=first,
        )
        batch_views: torch.Tensor = views.make_views(
            pixels.rows,
            rows_KM.reshape(-1),
            params,
            side=side,
            mean=self.mean,
            std=self.std,
            threads=recipe.run.threads,
            backend="torch" if isinstance(pixels.rows, torch.Tensor) else recipe.run.kernels,
        )
        batch_views = batch_views.to(self.device, non_blocking=True)
        return batch_views.reshape(*rows_KM.shape, *batch_views.shape[1:]), params

    def window_fits(self) -> bool:
        """Whether the cache of a stream from a URL holds the images that are shuffled at a time."""
        pixels, section = self.images.images, self.recipe.data
        if not is_streamed(pixels):
            return True
        share = self.world if section.lanes % self.world == 0 else 1  # each process reads its own lanes, or all
        return pixels.window_fits(section.window // share, section.lanes // share)

    def close(self) -> None:
        """Stop preparing steps ahead; any step can still be computed."""
        self._pixels.close()

    def names(self, indices: NDArray[np.int64]) -> list[str]:
        """A name per image for display: its file; empty if images are not files. Labels are not used."""
        return [] if self.images.files is None else [self.images.files[int(i)] for i in indices]

    def _order(self, epoch: int) -> NDArray[np.int64]:
        """The permutation of an epoch; the last two are kept."""
        if epoch not in self._orders:
            for old in list(self._orders)[:-1]:
                del self._orders[old]
            self._orders[epoch] = rng.permutation(len(self.images), rng.ORDER, self.recipe.seed, epoch)
        return self._orders[epoch]


def small_side(recipe: Recipe, side: int) -> int:
    """The side of small views, by default half of that of the others."""
    return recipe.views.small_side or side // 2


def batches(maker: BatchMaker, start: int, stop: int, *, ahead: bool) -> Iterator[Batch]:
    """The batches of steps `start` to `stop`; with `ahead`, the next one is prepared in a background thread."""
    if not ahead:
        yield from map(maker.make, range(start, stop))
        return
    with ThreadPoolExecutor(1, thread_name_prefix="relatum-views") as pool:
        waiting: Future[Batch] | None = pool.submit(maker.make, start) if start < stop else None
        for step in range(start, stop):
            assert waiting is not None
            batch = waiting.result()
            waiting = pool.submit(maker.make, step + 1) if step + 1 < stop else None
            yield batch
