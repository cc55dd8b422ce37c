from __future__ import annotations

import errno
import multiprocessing
import os
import time
from pathlib import Path

import numpy as np
import pytest

import relatum.data
from relatum.data import cache
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
