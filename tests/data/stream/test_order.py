"""The order of an epoch: every image once, a pure function of (seed, epoch), local."""

from __future__ import annotations

import numpy as np
import pytest

from relatum.data.stream.order import StreamOrder


def epoch_of(order: StreamOrder, epoch: int, total: int, step: int = 7) -> list[int]:
    return [int(i) for start in range(0, total, step) for i in order(epoch, start, start + step)]


@pytest.mark.parametrize("counts", [[1], [5, 5, 5], [100, 1, 40, 3], [17] * 9, [2] * 50])
@pytest.mark.parametrize("lanes", [1, 3, 8])
@pytest.mark.parametrize("window", [1, 10, 1000])
def test_every_image_once_whatever_the_shards_lanes_and_window(counts: list[int], lanes: int, window: int) -> None:
    order = StreamOrder(np.array(counts), seed=1, window=window, lanes=lanes)
    for epoch in range(3):
        assert sorted(epoch_of(order, epoch, sum(counts))) == list(range(sum(counts)))


def test_it_is_a_pure_function_of_seed_and_epoch() -> None:
    first, second = (StreamOrder(np.array([50, 60, 70]), seed=3, window=32, lanes=4) for _ in range(2))
    assert epoch_of(first, 5, 180, 7) == epoch_of(second, 5, 180, 180)
    assert second(5, 90, 100).tolist() == first(5, 0, 180)[90:100].tolist()
    assert epoch_of(first, 5, 180) != epoch_of(first, 6, 180)
    assert epoch_of(first, 5, 180) != epoch_of(StreamOrder(np.array([50, 60, 70]), seed=4, window=32, lanes=4), 5, 180)


def test_a_stretch_of_an_epoch_reads_few_shards() -> None:
    """8 lanes and windows of 64 images in each: at most two or three shards of 1,000 images per lane at a time."""
    order = StreamOrder(np.full(100, 1000), seed=1, window=512, lanes=8)
    for start in (0, 20_000, 77_777):
        shards = np.unique(order(0, start, start + 1024) // 1000)
        assert len(shards) <= 24
    assert len(np.unique(order(0, 0, 64) // 1000)) >= 6  # and yet a mini-batch mixes shards


def test_processes_that_divide_the_lanes_read_different_shards() -> None:
    order = StreamOrder(np.full(64, 100), seed=1, window=256, lanes=8)
    read = [set(), set()]
    for start in range(0, 6400, 64):
        for rank in range(2):
            read[rank] |= set((order(0, start, start + 64)[rank::2] // 100).tolist())
    assert len(read[0] & read[1]) <= 8  # only shards that a lane ends in
    assert len(read[0] | read[1]) == 64
