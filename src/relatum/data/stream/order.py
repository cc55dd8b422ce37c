"""The order of streamed images in an epoch: a pure function of (seed, epoch), computed piece by piece.

The shards are shuffled and laid end to end. The sequence is cut into equal parts, the lanes; the mini-batches take one
image from each lane in turn. Within a lane, images are shuffled in windows of consecutive ones. So an epoch reads every
shard from its start to its end, a few shards at a time, and uses every image exactly once. A process whose number of
processes divides the number of lanes reads its own lanes only.

Nothing here is as long as the data: a permutation of the shards, and one of each window in use.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from relatum import rng


class StreamOrder:
    """The order of every epoch.

    Args:
        counts: the number of images of each shard.
        seed: the run's seed.
        window: images that are shuffled at a time, over all lanes.
        lanes: parts of the sequence that are read side by side.
    """

    def __init__(self, counts: NDArray[np.int64], *, seed: int, window: int, lanes: int) -> None:
        self._counts, self._seed = np.asarray(counts, np.int64), seed
        self._starts = np.cumsum(self._counts) - self._counts
        self._total = int(self._counts.sum())
        self._lanes = max(1, min(lanes, self._total))
        self._window = max(1, window // self._lanes)
        self._shards = lru_cache(maxsize=2)(self._shuffle_shards)
        self._places = lru_cache(maxsize=4 * self._lanes)(self._shuffle_window)

    def __call__(self, epoch: int, start: int, stop: int) -> NDArray[np.int64]:
        """The images at the positions from `start` to `stop` of an epoch."""
        positions = np.arange(start, min(stop, self._total), dtype=np.int64)
        lanes, places = positions % self._lanes, positions // self._lanes
        windows, within = np.divmod(places, self._window)
        shuffled = np.empty_like(places)
        for lane, window in {(int(a), int(b)) for a, b in zip(lanes, windows, strict=True)}:
            in_window = (lanes == lane) & (windows == window)
            shuffled[in_window] = self._places(epoch, lane, window)[within[in_window]]
        small, longer = divmod(self._total, self._lanes)
        sequence = lanes * small + np.minimum(lanes, longer) + windows * self._window + shuffled
        order, ends = self._shards(epoch)
        place = np.searchsorted(ends, sequence, side="right")
        shard = order[place]
        return self._starts[shard] + sequence - (ends[place] - self._counts[shard])

    def _shuffle_shards(self, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The shards in the order of an epoch, and where each one ends in the sequence."""
        order = rng.permutation(len(self._counts), rng.STREAM, self._seed, epoch, -1, 0)
        return order, np.cumsum(self._counts[order])

    def _shuffle_window(self, epoch: int, lane: int, window: int) -> NDArray[np.int64]:
        length = self._total // self._lanes + (lane < self._total % self._lanes)
        size = min(self._window, length - window * self._window)
        return rng.permutation(size, rng.STREAM, self._seed, epoch, lane, window)
