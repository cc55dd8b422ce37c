"""Shards at a URL: a real web server on this machine, a cache smaller than the data, failures of the network."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from shard_maker import number_of, write_shards
from web import Handler, serve

import relatum.data
from relatum.data.stream import store
from relatum.data.stream.images import is_streamed
from relatum.data.stream.index import write_index
from relatum.errors import InputError, RelatumError

pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")
HTTPFileSystem = pytest.importorskip("fsspec.implementations.http").HTTPFileSystem


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    with serve(write_shards(tmp_path / "web", [30, 20, 40])) as url:
        yield url


@pytest.mark.parametrize("place", ["", "/part-{000..002}.tar"])
def test_a_url_gives_what_the_folder_gives(server: str, tmp_path: Path, place: str) -> None:
    remote = relatum.data.load(server + place, cache_bytes=1 << 30)
    local = relatum.data.load(tmp_path / "web", storage="stream")
    assert is_streamed(remote.images)
    assert np.array_equal(remote.images[:], local.images[:])
    assert remote.labels is not None
    assert local.labels is not None
    assert remote.labels.tolist() == local.labels.tolist()
    assert (remote.classes, remote.mean, remote.std) == (local.classes, local.mean, local.std)


def test_a_cache_smaller_than_the_data(
    server: str, tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relatum.data.stream.store.BlockCache", partial(store.BlockCache, block=8192))
    images = relatum.data.load(server, cache_bytes=40_000).images
    assert sum(p.stat().st_size for p in (tmp_path / "web").glob("*.tar")) > 4 * 40_000
    generator = np.random.default_rng(0)
    for _ in range(20):
        chosen = generator.permutation(90)[:16]
        assert number_of(images[chosen]).tolist() == chosen.tolist()
        assert sum(p.stat().st_size for p in (own_cache / "blocks").rglob("*.block")) <= 40_000


def test_a_window_that_the_cache_does_not_hold_is_noticed(server: str, tmp_path: Path) -> None:
    size = sum(p.stat().st_size for p in (tmp_path / "web").glob("*.tar"))
    small, large = (relatum.data.load(server, cache_bytes=limit).images for limit in (1 << 20, 1 << 30))
    assert size < 1 << 20
    assert large.window_fits(90, 8)
    assert not small.window_fits(90, 8)  # 8 lanes, each of which may touch two blocks of 256 KiB
    assert small.window_fits(90, 1)
    assert relatum.data.load(tmp_path / "web", storage="stream").images.window_fits(90, 8)


def test_failures_of_the_network_are_tried_again(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    images = relatum.data.load(server).images
    monkeypatch.setattr("relatum.data.stream.store._WAIT", 0.01)
    Handler.failures = 2
    assert number_of(images[:3]).tolist() == [0, 1, 2]
    Handler.failures = 1000
    try:
        with pytest.raises(RelatumError, match=r"part-00.\.tar could not be read after 4 attempts"):
            images[:]
    finally:
        Handler.failures = 0


def test_an_answer_that_is_too_short_is_tried_again(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was kept in the cache as if the shard ended there, so that its images were damaged in every later run."""
    images = relatum.data.load(server).images
    monkeypatch.setattr("relatum.data.stream.store._WAIT", 0.01)
    monkeypatch.setattr(Handler, "short_answers", 2)
    assert number_of(images[:]).tolist() == list(range(90))
    assert Handler.short_answers == 0
    assert images.damaged == []


def test_a_missing_shard_is_named(server: str, tmp_path: Path) -> None:
    (tmp_path / "web" / "part-001.tar").unlink()
    images = relatum.data.load(f"{server}/part-{{000..002}}.tar")
    assert [(s.path, s.reason) for s in images.skipped] == [("part-001.tar", "the shard is missing")]
    assert len(images) == 70


def test_what_is_not_there_is_one_line(server: str) -> None:
    with pytest.raises(InputError, match="nothing-here"):
        relatum.data.load(f"{server}/nothing-here")
    with pytest.raises(InputError, match="cannot be opened"):
        relatum.data.load("nosuchprotocol://host/shards")
    with pytest.raises(InputError, match="can only be streamed"):
        relatum.data.load(server, storage="map")


def test_some_of_the_shards_of_an_index_at_a_url(tmp_path: Path) -> None:
    write_index(store.LocalShards(sorted(write_shards(tmp_path / "web", [30, 20, 40]).glob("*.tar"))), tmp_path / "web")
    with serve(tmp_path / "web") as url:
        some = relatum.data.load(f"{url}/part-{{001..002}}.tar", cache_bytes=1 << 30)
        assert number_of(some.images[:]).tolist() == list(range(30, 90))
        assert not some.skipped


def test_listing_over_a_bad_network_loses_no_image(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard whose listing failed was recorded as damaged, in a list that is kept: later runs lacked its images."""
    monkeypatch.setattr("relatum.data.stream.store._WAIT", 0.01)
    Handler.failures = 1000
    try:
        with pytest.raises(RelatumError, match=r"part-00.\.tar could not be read after 4 attempts"):
            relatum.data.load(server)
    finally:
        Handler.failures = 0
    monkeypatch.setattr(Handler, "short_answers", 2)
    images = relatum.data.load(server)
    assert (len(images), images.skipped) == (90, ())
    assert number_of(images.images[:]).tolist() == list(range(90))


def test_a_server_that_does_not_state_sizes(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its shards were recorded as empty, in a list that is kept."""

    async def info(self: object, url: str, **options: object) -> dict[str, object]:
        return {"name": url, "size": None, "type": "file"}

    monkeypatch.setattr(HTTPFileSystem, "_info", info)
    monkeypatch.setattr(HTTPFileSystem, "cachable", False)  # those of other tests have the real one
    with pytest.raises(InputError, match=r"part-000\.tar cannot be streamed: its server does not state"):
        relatum.data.load(server)
