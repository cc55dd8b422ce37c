"""Damaged caches, a full disk, a lack of memory, and a cache shared by several users."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import relatum.data
from relatum.data import seal, spill
from relatum.errors import RelatumError


@pytest.fixture
def photos(tmp_path: Path, picture: Callable[..., Path]) -> Path:
    for i in range(40):
        picture(tmp_path / "photos" / f"{i:02}.png", 32, 32, seed=i)
    return tmp_path / "photos"


def entry(cache: Path, kind: str = "folders") -> Path:
    [folder] = (cache / kind).iterdir()
    return folder


def run(code: str, *arguments: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=False, **options
    )  # type: ignore[call-overload]


LOAD = "import sys, relatum.data; relatum.data.load(sys.argv[1])"


@pytest.mark.parametrize("place", [500, 40_000, -1])
def test_one_flipped_byte_is_noticed(photos: Path, own_cache: Path, place: int, capsys) -> None:
    good = np.array(relatum.data.load(photos).images)
    file = entry(own_cache) / "images.npy"
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)
    assert np.array_equal(relatum.data.load(photos).images, good)
    told = capsys.readouterr().err
    assert told.count("is damaged") == 1
    assert "images.npy has changed" in " ".join(told.split())
    relatum.data.load(photos)
    assert not capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"\x93NUMPY\x01\0\xff\xff{", b"x" * 5000])
@pytest.mark.parametrize("sealed", [True, False])
def test_no_content_of_the_array_stops_a_command(photos: Path, own_cache: Path, content: bytes, sealed: bool) -> None:
    good = np.array(relatum.data.load(photos).images)
    folder = entry(own_cache)
    (folder / "images.npy").write_bytes(content)
    if sealed:  # somebody wrote it on purpose
        (folder / seal.SEAL).unlink()
        seal.write_seal(folder)
    assert np.array_equal(relatum.data.load(photos).images, good)


def test_a_wrong_number_of_rows(photos: Path, own_cache: Path) -> None:
    good = np.array(relatum.data.load(photos).images)
    folder = entry(own_cache)
    np.save(folder / "images.npy", good[:-3])
    seal.write_seal(folder)
    assert len(relatum.data.load(photos)) == 40


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"images.npy": 3}', '{"../../x": ["1"]}', "\0"])
def test_a_damaged_seal(photos: Path, own_cache: Path, text: str, capsys) -> None:
    good = np.array(relatum.data.load(photos).images)
    (entry(own_cache) / seal.SEAL).write_text(text)
    assert np.array_equal(relatum.data.load(photos).images, good)
    assert "is damaged" in capsys.readouterr().err


def test_an_entry_of_an_earlier_version_is_built_again_quietly(photos: Path, own_cache: Path, capsys) -> None:
    relatum.data.load(photos)
    (entry(own_cache) / seal.SEAL).unlink()
    assert len(relatum.data.load(photos)) == 40
    assert (entry(own_cache) / seal.SEAL).exists()
    assert not capsys.readouterr().err


def test_shapes_are_drawn_again(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from relatum.data.sets.shapes import SHAPES

    monkeypatch.setitem(SHAPES.splits, "test", 50)
    drawn = relatum.data.load("shapes", "test")
    good, labels = np.array(drawn.images), drawn.labels
    del drawn  # a map of a file that is cut cannot be read
    for name in ("images.npy", "labels.npy"):
        (entry(own_cache, "shapes") / name).write_bytes(b"")
        again = relatum.data.load("shapes", "test")
        assert np.array_equal(again.images, good)
        assert np.array_equal(again.labels, labels)
        del again


# --------------------------------------------------------------------------------------------------------- disk, memory


def test_a_full_disk_while_decoding(photos: Path, small_disk: Path, picture: Callable[..., Path]) -> None:
    for i in range(40, 400):
        picture(photos / f"{i}.png", 32, 32, seed=i)
    done = run(LOAD, photos, env={**os.environ, "RELATUM_CACHE": str(small_disk)})
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert list((small_disk / "folders").iterdir()) == []


def test_a_full_disk_while_stl10_is_transposed(tmp_path: Path, small_disk: Path) -> None:
    folder = tmp_path / "root" / "stl10_binary"
    folder.mkdir(parents=True)
    np.zeros(100 * 27648, np.uint8).tofile(folder / "unlabeled_X.bin")
    code = "import sys, relatum.data; relatum.data.load('stl10', 'unlabeled', root=sys.argv[1])"
    done = run(code, folder.parent, env={**os.environ, "RELATUM_CACHE": str(small_disk)})
    assert done.returncode == 1  # not -SIGBUS
    assert "No space left on device" in done.stderr
    assert list((small_disk / "stl10").iterdir()) == []


def test_a_full_disk_while_a_subset_is_copied(tmp_path: Path, small_disk: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((900, 32, 32, 3), np.uint8))
    code = (
        "import sys, numpy as np; from relatum.data import spill; spill._LARGE = 100\n"
        "spill.take(np.load(sys.argv[1], mmap_mode='r'), np.arange(0, 900, 2))"
    )
    done = run(code, tmp_path / "x.npy", env={**os.environ, "RELATUM_CACHE": str(small_disk)})
    assert done.returncode == 1
    assert "No space left on device" in done.stderr


def test_the_copy_of_a_subset_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "_LARGE", 100)
    pixels = np.random.default_rng(0).integers(0, 256, (5000, 2, 2, 3), dtype=np.uint8)
    np.save(tmp_path / "x.npy", pixels)
    part = spill.take(np.load(tmp_path / "x.npy", mmap_mode="r"), np.arange(0, 5000, 2))
    assert np.array_equal(part, pixels[::2])


def test_a_lack_of_memory_is_not_damage(photos: Path, own_cache: Path) -> None:
    relatum.data.load(photos, side=1024)  # 126 MB
    before = {p.name: p.stat().st_ino for p in entry(own_cache).iterdir()}
    code = (
        "import resource, sys, relatum.data, relatum.data.folder; from relatum.errors import RelatumError\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (100 << 20),) * 2)\n"
        "try: relatum.data.load(sys.argv[1], side=1024)\n"
        "except RelatumError as error: print(error); sys.exit(7)"
    )
    done = run(code, photos)
    assert done.returncode == 7, done.stderr
    assert "not enough memory" in done.stdout
    assert {p.name: p.stat().st_ino for p in entry(own_cache).iterdir()} == before
    assert resource.getrlimit(resource.RLIMIT_AS) == (resource.RLIM_INFINITY,) * 2


# ------------------------------------------------------------------------------------------------------- several users


def test_entries_follow_the_umask(photos: Path, own_cache: Path) -> None:
    before = os.umask(0o022)
    try:
        relatum.data.load(photos)
    finally:
        os.umask(before)
    folder = entry(own_cache)
    assert folder.stat().st_mode & 0o777 == 0o755
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o644}


def test_a_cache_that_can_only_be_read_is_used(photos: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    relatum.data.load(photos)

    def not_writable() -> Path:
        raise AssertionError("a valid entry needs no writable cache")

    monkeypatch.setattr("relatum.data.cache.cache_dir", not_writable)
    assert len(relatum.data.load(photos)) == 40


def test_an_unreadable_entry_is_not_removed(photos: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    relatum.data.load(photos)

    def denied(folder: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("relatum.data.cache.check_seal", denied)
    with pytest.raises(RelatumError, match="Permission denied"):
        relatum.data.load(photos)
    assert (entry(own_cache) / "images.npy").exists()
