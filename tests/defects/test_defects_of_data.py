"""The defects of data, caches and reports that a review found, each through the command line.

See test_defects_of_runs.py for how to run them against an earlier version.
"""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib
from pathlib import Path

import blackbox
import numpy as np
import pytest
from blackbox import copy, patched, relatum
from PIL import Image
from python2 import python2_pickle
from shard_maker import png, write_tar

pytestmark = pytest.mark.slow
GIB = 1 << 30


def large_png(path: Path, side: int, bits: int, kind: int, channels: int) -> None:
    """A PNG of one colour and many pixels, written row by row."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    packer, row = zlib.compressobj(1), bytes(1 + side * channels * bits // 8)
    content = b"".join([packer.compress(row * 100) for _ in range(side // 100)]) + packer.flush()
    header = struct.pack(">IIBBBBB", side, side, bits, kind, 0, 0, 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", content) + chunk(b"IEND", b""))


# ------------------------------------------------------------------------------------------------- 7, 8: caches on disk


def test_07_a_full_disk_while_a_cache_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "root" / "stl10_binary"
    folder.mkdir(parents=True)
    np.zeros(100 * 27648, np.uint8).tofile(folder / "unlabeled_X.bin")
    for name in ("train", "test"):
        np.zeros(10 * 27648, np.uint8).tofile(folder / f"{name}_X.bin")
        np.ones(10, np.uint8).tofile(folder / f"{name}_y.bin")
    (folder / "class_names.txt").write_text("\n".join("abcdefghij"))
    with blackbox.disk(tmp_path / "disk", "1m") as disk:
        env = {"RELATUM_CACHE": str(disk)}
        code = (
            "import sys, relatum.data\nfrom relatum.errors import RelatumError\n"
            "try: relatum.data.load('stl10', 'unlabeled', root=sys.argv[1])\n"
            "except RelatumError as error: sys.exit('error: ' + ' '.join(str(error).split()))"
        )
        done = blackbox.run("-c", code, folder.parent, env=env)
        assert done.code == 1, done  # not a SIGBUS
        assert "No space left on device" in done.said
        assert "Traceback" not in done.said
        assert not [path for path in disk.rglob("*") if path.is_file() and path.stat().st_size > 100_000]


def test_08_a_cache_can_be_shared(tmp_path: Path) -> None:
    data = blackbox.photos(tmp_path / "photos", 4)
    code = "import os; os.umask(0o022)"
    env = {"RELATUM_CACHE": str(tmp_path / "cache")}
    flags = (*blackbox.SHORT, "--epochs", 1)
    assert patched(code, "pretrain", data, "--out", tmp_path / "run", *flags, env=env).code == 0
    entries = [path for path in (tmp_path / "cache").rglob("*") if path.name[0] != "."]
    assert any(path.is_file() for path in entries)
    for path in entries:
        assert path.stat().st_mode & 0o444 == 0o444, path
        assert not path.is_dir() or path.stat().st_mode & 0o111 == 0o111, path


# ---------------------------------------------------------------------------------------------- 9, 16: memory and time


@pytest.mark.parametrize(("bits", "kind", "channels"), [(8, 6, 4), (16, 0, 1)], ids=["transparent", "16-bit grey"])
def test_09_memory_of_decoding_is_bounded(tmp_path: Path, bits: int, kind: int, channels: int) -> None:
    data = tmp_path / "photos"
    large_png(data / "large.png", 13_000, bits, kind, channels)
    Image.new("RGB", (32, 32), (9, 0, 0)).save(data / "small.png")
    code = "import sys, relatum.data; print(len(relatum.data.load(sys.argv[1], side=32)))"
    done = blackbox.run("-c", code, data, env={"RELATUM_CACHE": str(tmp_path / "cache")}, memory=16 * GIB)
    assert done.code == 0, done.said
    assert done.peak < 1.5 * GIB, done.peak / GIB


BOMBS = {
    "memo": b"\x80\x02}r\xff\xff\xff\x0f.",
    "nested tuples": b"\x80\x02}" + b"K\x01" + b"q\x00h\x00\x86" * 40 + b"K\x01s.",
}


@pytest.mark.parametrize("name", BOMBS)
def test_16_pickles_take_neither_memory_nor_time(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for batch in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta"):
        (folder / batch).write_bytes(BOMBS[name])
    done = relatum("data", "info", "cifar10", "--root", tmp_path, memory=12 * GIB, seconds=60)
    assert done.code in (1, 2), done
    assert done.peak < GIB, done.peak / GIB


def test_16_a_damaged_batch_is_not_hidden(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for batch in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        content = {b"data": rng.integers(0, 255, (4, 3072), np.uint8), b"labels": [0, 1, 2, 3]}
        (folder / batch).write_bytes(python2_pickle(content))
    (folder / "batches.meta").write_bytes(python2_pickle({b"label_names": [b"n%d" % i for i in range(10)]}))
    assert relatum("data", "info", "cifar10", "--root", tmp_path).code == 0
    (folder / "data_batch_3").write_bytes((folder / "data_batch_3").read_bytes()[:100])
    done = relatum("data", "info", "cifar10", "--root", tmp_path)
    done.check_clear()
    assert "data_batch_3" in done.said


def test_16_an_artifact_that_unpacks_to_gigabytes(whole: Path, tmp_path: Path) -> None:
    folder = copy(whole, tmp_path / "run")
    with zipfile.ZipFile(folder / "artifacts" / "views.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("views", "originals", "images"):
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                header = {"descr": "|u1", "fortran_order": False, "shape": (2, 2, 16_000, 16_000, 3)}
                np.lib.format.write_array_header_1_0(file, header)
                for _ in range(3 * 1024):
                    file.write(bytes(2**20))
    done = relatum("report", folder, "--out", tmp_path / "r.html", memory=16 * GIB)
    assert done.code == 0, done.said
    assert done.peak < GIB, done.peak / GIB


# ------------------------------------------------------------------------------------------------------ 10, 19: shards


def test_10_more_shards_than_file_descriptors(tmp_path: Path) -> None:
    for i in range(150):
        write_tar(tmp_path / "s" / f"{i:03}.tar", {f"{i}.png": png(i)})
    code = "import sys, relatum.data; x = relatum.data.load(sys.argv[1]); print(len(x), len(x.skipped))"
    done = blackbox.run("-c", code, tmp_path / "s", files=100)
    assert done.out.split() == ["150", "0"], done.said


@pytest.mark.parametrize("size", [b"77777777777\0", b"\x80\x7f" + b"\xff" * 10, b"\xff" * 12])
def test_19_an_absurd_member_does_not_fail_the_set(size: bytes, tmp_path: Path) -> None:
    path = write_tar(tmp_path / "s" / "0.tar", {f"{i}.png": png(i) for i in range(3)})
    write_tar(tmp_path / "s" / "1.tar", {f"{i}.png": png(i) for i in range(5, 8)})
    raw = bytearray(path.read_bytes())
    place = next(i for i in range(512, len(raw), 512) if raw[i : i + 5] == b"1.png")
    raw[place + 124 : place + 136] = size
    raw[place + 148 : place + 156] = b" " * 8
    raw[place + 148 : place + 156] = b"%06o\0 " % sum(raw[place : place + 512])
    path.write_bytes(raw)
    code = (
        "import sys, relatum.data; x = relatum.data.load(sys.argv[1])\n"
        "assert {'0.png', '5.png', '6.png', '7.png'} <= set(x.files), x.files; assert x.skipped"
    )
    done = blackbox.run("-c", code, tmp_path / "s")
    assert done.code == 0, done.said


# ------------------------------------------------------------------------------------------- 12, 19: names and reports


def test_12_escape_codes_do_not_reach_the_terminal(tmp_path: Path) -> None:
    data = blackbox.photos(tmp_path / "photos", 4)
    (data / "a" / "\x1b[31mred\x07.png").write_bytes(b"no picture")
    done = relatum("data", "info", data)
    assert "red" in done.said
    assert "\x1b[31mred" not in done.out + done.err
    assert "\x07" not in done.out + done.err


def test_12_downloads_come_from_the_published_address(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    npm = tmp_path / "bin" / "npm"
    npm.write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\nexit 1\n")
    npm.chmod(0o755)
    code = (
        "import time, urllib.error, urllib.request\n"
        "def urlopen(*_, **__): raise urllib.error.URLError('no network in this test')\n"
        "urllib.request.urlopen = urlopen\ntime.sleep = lambda _: None"
    )
    env = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    patched(code, "data", "get", "cifar10", "--root", tmp_path / "root", env=env).check_clear()
    assert not (tmp_path / "asked").exists()


def test_19_damaged_artifacts_do_not_stop_the_report(whole: Path, tmp_path: Path) -> None:
    good = (whole / "artifacts" / "views.npz").read_bytes()
    with zipfile.ZipFile(whole / "artifacts" / "views.npz") as archive:
        member = max(archive.infolist(), key=lambda info: info.compress_size)
    start = member.header_offset + 30 + len(member.filename) + 20
    folder = copy(whole, tmp_path / "run")
    for position in (start + 2, start + 50, start + member.compress_size // 2):
        damaged = bytearray(good)
        for i in range(position, position + 8):
            damaged[i] ^= 0xFF
        (folder / "artifacts" / "views.npz").write_bytes(damaged)
        done = relatum("report", folder, "--out", tmp_path / "r.html")
        assert done.code == 0, done.said
    with np.load(io.BytesIO(good)) as file:
        arrays = {name: file[name] for name in file.files}
    with np.load(whole / "artifacts" / "pairs.npz") as file:
        pairs = {name: file[name] for name in file.files}
    for name, values in pairs.items():
        if values.dtype.kind == "f":
            pairs[name] = np.full_like(values, np.inf)
    np.savez(folder / "artifacts" / "views.npz", **arrays)
    np.savez(folder / "artifacts" / "pairs.npz", **pairs)
    done = relatum("report", folder, "--out", tmp_path / "r.html")
    assert done.code == 0, done.said
