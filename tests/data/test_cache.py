from __future__ import annotations

import errno
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from shard_maker import write_shards

import relatum.data
from relatum.data import cache, decoded
from relatum.data.stream.blocks import BlockCache
from relatum.errors import RelatumError


def good(place: Path) -> bool:
    return (place / "x").exists()


def test_built_once_and_again_when_damaged(own_cache: Path) -> None:
    calls = []

    def build(work: Path) -> None:
        calls.append(work)
        (work / "x").write_text(str(len(calls)))

    for _ in range(2):
        place = cache.entry("kind", "name", build, valid=good)
        assert (place / "x").read_text() == "1"
    (place / "x").unlink()
    assert (cache.entry("kind", "name", build, valid=good) / "x").read_text() == "2"
    assert [p.name for p in (own_cache / "kind").iterdir()] == ["name"]


def test_a_system_without_positioned_reads(own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Windows, which has no `os.pread`: the cache, shards and blocks of shards are read without it."""
    monkeypatch.delattr(os, "pread")
    shards = write_shards(tmp_path / "shards", [2, 2])
    decoded, streamed = (relatum.data.load(shards, storage=storage) for storage in ("map", "stream"))
    assert sorted(map(bytes, decoded.images)) == sorted(map(bytes, streamed.images))
    for _ in range(2):
        blocks = BlockCache(1 << 20, lambda shard, start, size: b"0123456789"[start : start + size], "a")
        assert blocks.read(0, 3, 4) == b"3456"
        assert blocks.read(0, 2, 2) == b"23"
        del blocks


def test_a_failed_build_leaves_nothing(own_cache: Path) -> None:
    def build(work: Path) -> None:
        (work / "x").write_text("half")
        raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        cache.entry("kind", "name", build, valid=good)
    assert list((own_cache / "kind").iterdir()) == []


def test_the_first_of_two_builders_wins(own_cache: Path) -> None:
    def build(work: Path) -> None:
        other = own_cache / "kind" / "name"  # another process finishes in the meantime
        other.mkdir()
        (other / "x").write_text("theirs")
        (work / "x").write_text("ours")

    place = cache.entry("kind", "name", build, valid=good)
    assert (place / "x").read_text() == "theirs"
    assert len(list((own_cache / "kind").iterdir())) == 1


def test_an_entry_that_another_process_has_just_built_is_kept(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = own_cache / "kind" / "name"

    def meanwhile(kind: str = "") -> Path:  # between the look at the cache and the build
        if not theirs.exists():
            theirs.mkdir(parents=True)
            (theirs / "x").write_text("theirs")
        return theirs.parent

    monkeypatch.setattr(cache, "cache_dir", meanwhile)
    place = cache.entry("kind", "name", lambda work: (work / "x").touch(), valid=good)
    assert (place / "x").read_text() == "theirs"


def test_an_entry_that_another_process_removes_is_built_again(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        Image.new("RGB", (32, 32), (number, 0, 0)).save(tmp_path / f"{number}.png")
    left = [2]

    def removed(place: Path, *rest: Any, **options: Any) -> Any:  # it had another list of files, and replaced the entry
        if left[0]:
            left[0] -= 1
            shutil.rmtree(place)
        return opened(place, *rest, **options)

    opened = decoded._open
    monkeypatch.setattr(decoded, "_open", removed)
    assert len(relatum.data.load(tmp_path)) == 3
    left[0] = 99
    with pytest.raises(RelatumError, match="repeatedly removed"):
        relatum.data.load(tmp_path)


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), MemoryError()])
def test_a_file_that_could_not_be_read_for_a_moment_is_tried_again(
    error: Exception, tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        Image.new("RGB", (32, 32), (number, 0, 0)).save(tmp_path / f"{number}.png")

    def failing(source: Path, side: int) -> Any:
        if source.name == "1.png":
            raise error
        return decode(source, side)

    decode = decoded.decode
    monkeypatch.setattr(decoded, "decode", failing)
    assert [s.path for s in relatum.data.load(tmp_path).skipped] == ["1.png"]
    monkeypatch.setattr(decoded, "decode", decode)
    assert len(relatum.data.load(tmp_path)) == 3


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs root, to be two users")
def test_two_users_share_a_cache(tmp_path: Path) -> None:
    """The sub-folder of the first user cannot be written by the second, who goes elsewhere."""
    place = Path(tempfile.mkdtemp(prefix="relatum-test-"))
    try:
        place.chmod(0o1777)
        (place / "kind").mkdir(mode=0o755)
        code = (
            "import os, sys; from relatum.data import cache; os.setgid(12345); os.setuid(12345)\n"
            "place = cache.entry('kind', 'name', lambda work: (work / 'x').touch(), valid=lambda place: True)\n"
            "print(place)"
        )
        environment = {**os.environ, "RELATUM_CACHE": str(place), "TMPDIR": str(place)}
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, env=environment, check=False
        )
        assert done.stdout.strip() == str(place / "relatum-12345" / "kind" / "name"), done.stderr
    finally:
        shutil.rmtree(place)


def test_a_full_disk_is_reported(own_cache: Path) -> None:
    def build(work: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(RelatumError, match=r"No space left on device.*\n.*RELATUM_CACHE"):
        cache.entry("kind", "name", build, valid=good)


def test_a_place_that_cannot_be_renamed_into(own_cache: Path) -> None:
    def build(work: Path) -> None:
        (own_cache / "kind" / "name").write_text("a file is in the way")

    with pytest.raises(RelatumError, match="could not be written"):
        cache.entry("kind", "name", build, valid=good)


def test_what_killed_builds_left_is_swept_after_a_day(own_cache: Path) -> None:
    old, new = (own_cache / "kind" / f".building-{n}" for n in ("old", "new"))
    for folder in (old, new):
        folder.mkdir(parents=True)
    os.utime(old, (time.time() - 100_000,) * 2)
    cache.entry("kind", "name", lambda work: (work / "x").touch(), valid=good)
    assert not old.exists()
    assert new.exists()


def _load(root: str, cache_folder: str, gate, results) -> None:
    os.environ["RELATUM_CACHE"] = cache_folder
    gate.wait()
    images = relatum.data.load(root)
    results.put((len(images), int(np.asarray(images.images, np.int64).sum()), images.mean))


def test_two_processes_at_once(tmp_path: Path, picture, own_cache: Path) -> None:
    for i in range(60):
        picture(tmp_path / "p" / f"{i}.png", seed=i)
    context = multiprocessing.get_context("spawn")
    gate, results = context.Barrier(2), context.Queue()
    workers = [
        context.Process(target=_load, args=(str(tmp_path / "p"), str(own_cache), gate, results)) for _ in range(2)
    ]
    for worker in workers:
        worker.start()
    first, second = results.get(timeout=60), results.get(timeout=60)
    for worker in workers:
        worker.join()
    assert first == second
    assert first[0] == 60
    [entry] = (own_cache / "folders").iterdir()
    assert np.load(entry / "images.npy").sum(dtype=np.int64) == first[1]
