"""The cache of blocks: right bytes, never more room than stated, survivors of damage and of other processes."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from relatum.data.stream.blocks import BlockCache
from relatum.errors import InputError

BLOCK = 1000
SHARDS = [random.Random(n).randbytes(10_500 + n) for n in range(3)]


@pytest.fixture
def source() -> Callable[[int, int, int], bytes]:
    fetched: list[tuple[int, int]] = []

    def fetch(shard: int, start: int, size: int) -> bytes:
        fetched.append((shard, start // BLOCK))
        return SHARDS[shard][start : start + size]

    fetch.fetched = fetched  # type: ignore[attr-defined]
    return fetch


def on_disk(cache: Path) -> int:
    total = 0
    for path in (cache / "blocks").rglob("*.block"):
        with contextlib.suppress(FileNotFoundError):  # another thread has just deleted it
            total += path.stat().st_size
    return total


def test_right_bytes_in_bounded_room_from_many_threads(source, own_cache: Path) -> None:
    cache = BlockCache(5 * BLOCK, source, "a", block=BLOCK)
    generator = random.Random(1)
    places = [(generator.randrange(3), generator.randrange(10_000), generator.randrange(1, 2500)) for _ in range(300)]

    def check(place: tuple[int, int, int]) -> None:
        shard, start, size = place
        size = min(size, len(SHARDS[shard]) - start)
        assert cache.read(shard, start, size) == SHARDS[shard][start : start + size]
        assert on_disk(own_cache) <= 5 * BLOCK

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(check, places))
    assert cache.used <= 5 * BLOCK


def test_what_is_cached_is_not_fetched_again_not_even_by_the_next_process(source, own_cache: Path) -> None:
    first = BlockCache(50 * BLOCK, source, "a", block=BLOCK)
    first.read(0, 0, 10_000)
    first.read(0, 0, 10_000)
    assert len(source.fetched) == 10
    del first  # frees its folder, as the end of its process does
    second = BlockCache(50 * BLOCK, source, "a", block=BLOCK)
    assert second.read(0, 100, 9_000) == SHARDS[0][100:9_100]
    assert len(source.fetched) == 10
    del second
    BlockCache(50 * BLOCK, source, "other shards", block=BLOCK)
    assert on_disk(own_cache) == 0


def test_two_at_a_time_do_not_share_a_folder(source, own_cache: Path) -> None:
    caches = [BlockCache(3 * BLOCK, source, "a", block=BLOCK) for _ in range(2)]
    assert [cache.read(1, 5, 50) for cache in caches] == [SHARDS[1][5:55]] * 2
    assert len(list((own_cache / "blocks").iterdir())) == 2


def test_a_damaged_block_is_fetched_again(source, own_cache: Path) -> None:
    BlockCache(50 * BLOCK, source, "a", block=BLOCK).read(2, 0, 3 * BLOCK)
    damaged, lost, _ = sorted((own_cache / "blocks").rglob("*.block"))
    content = bytearray(damaged.read_bytes())
    content[3] ^= 1
    damaged.write_bytes(content)
    lost.unlink()
    assert BlockCache(50 * BLOCK, source, "a", block=BLOCK).read(2, 0, 3 * BLOCK) == SHARDS[2][: 3 * BLOCK]


def test_a_cache_that_is_too_small_is_refused(source) -> None:
    with pytest.raises(InputError, match="too small"):
        BlockCache(BLOCK, source, "a", block=BLOCK)
