from __future__ import annotations

import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads or writes the cache or the data of the person who runs it."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("RELATUM_CACHE", str(cache))
    monkeypatch.delenv("RELATUM_DATA", raising=False)
    return cache


@pytest.fixture
def picture():
    """Write a picture of random pixels; the name's ending chooses the format."""

    def write(path: Path, width: int = 40, height: int = 40, seed: int = 0, **options) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path, **options)
        return path

    return write


@pytest.fixture
def png_of():
    """A PNG that claims a size and has next to no content."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    def make(width: int, height: int) -> bytes:
        header = width.to_bytes(4, "big") + height.to_bytes(4, "big") + b"\x08\x02\0\0\0"
        content = chunk(b"IDAT", zlib.compress(b"\0" * 100))
        return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + content + chunk(b"IEND", b"")

    return make


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MB; needs the right to mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("a small disk cannot be mounted here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)
