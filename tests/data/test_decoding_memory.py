from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import relatum.data
from relatum.collection.file_facts import width_height_time
from relatum.data import decode
from relatum.data.decoding_memory import Budget, TooLarge, decoding_bytes
from relatum.system import modes


def test_threads_share_the_memory() -> None:
    budget, most, now, lock = Budget(100), 0, 0, threading.Lock()

    def work(size: int) -> None:
        nonlocal most, now
        with budget.hold(size):
            with lock:
                now += size
                most = max(most, now)
            time.sleep(0.002)
            with lock:
                now -= size

    threads = [threading.Thread(target=work, args=(size,)) for size in (60, 50, 100, 10, 40, 1) * 5]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert now == 0
    assert 60 <= most <= 100
    with pytest.raises(TooLarge, match="too many pixels"), budget.hold(101):
        pass


def test_a_failure_gives_the_memory_back() -> None:
    budget = Budget(10)
    for _ in range(3):
        with pytest.raises(OSError, match="broken"), budget.hold(10):
            raise OSError("broken")


def peak(path: Path, side: int = 32) -> int:
    """Bytes that decoding a file adds to a process at its peak."""
    code = (
        "import resource, sys; from pathlib import Path; from relatum.data.decode import decode, image_size\n"
        "from PIL import Image; image_size(Path(sys.argv[1])); decode(Path(sys.argv[2]), 32)\n"
        "used = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024\n"
        "before = used(); decode(Path(sys.argv[1]), int(sys.argv[3])); print(used() - before)"
    )
    small = path.with_name(f"small{path.suffix}")
    Image.open(path).resize((40, 40)).save(small)
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), str(small), str(side)], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.parametrize(
    ("mode", "ending", "options"),
    [
        ("RGB", ".png", {}),
        ("P", ".png", {}),
        ("LA", ".png", {}),
        ("I;16", ".png", {}),  # took 35 bytes per pixel
        ("I", ".tif", {}),
        ("F", ".tif", {}),
        ("RGB", ".webp", {}),
        ("RGB", ".jp2", {}),
        ("RGB", ".jpg", {"progressive": True}),
    ],
)
def test_the_estimate_is_not_exceeded(tmp_path: Path, mode: str, ending: str, options: dict) -> None:
    size = (3000, 2000)
    path = tmp_path / f"large{ending}"
    Image.new(mode, size).save(path, **options)
    with Image.open(path) as image:
        image.draft(None, (64, 64))
        estimate = decoding_bytes(image, size[0] * size[1])
    assert peak(path) < estimate + 20e6  # of a band of rows, and of the allocator


def test_conversion_in_bands_changes_no_pixel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    cases = {
        "a.png": rng.integers(0, 65536, (50, 40)).astype(np.uint16),
        "b.tif": rng.normal(0, 1000, (50, 40)).astype(np.float32),
        "c.tif": rng.integers(-5, 10**6, (50, 40)).astype(np.int32),
        "d.tif": rng.random((50, 40)).astype(np.float32),
    }
    for name, values in cases.items():
        Image.fromarray(values).save(tmp_path / name)
        whole = decode.decode(tmp_path / name, 40)
        with monkeypatch.context() as patch:
            patch.setattr(modes, "_BAND_PIXELS", 40 * 7)
            assert np.array_equal(decode.decode(tmp_path / name, 40), whole)


def test_an_image_over_the_limit_is_skipped_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("RGB", (500, 500)).save(tmp_path / "large.png")
    Image.new("RGB", (50, 50)).save(tmp_path / "small.png")
    monkeypatch.setattr(decode.MEMORY, "total", 500_000)
    images = relatum.data.load(tmp_path)
    assert images.files == ["small.png"]
    assert "too many pixels" in images.skipped[0].reason


def test_a_file_over_the_limit_is_skipped(tmp_path: Path) -> None:
    with (tmp_path / "huge.png").open("wb") as file:
        file.truncate(3 << 30)  # takes no room on the disk
    with pytest.raises(OSError, match=r"3\.2 GB"):
        decode.decode(tmp_path / "huge.png", 32)


# ------------------------------------------------------------------ files that are larger inside than their header says


def contents(image: Image.Image, format: str, **options) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def iptc(inside: bytes) -> bytes:
    """An IPTC file of 16 x 16 pixels that contains another file."""
    sixteen = struct.pack(">H", 16)
    facts = {(3, 20): sixteen, (3, 30): sixteen, (3, 60): b"\1\0", (3, 65): b"\1", (3, 120): b"\5", (8, 10): inside}
    return b"".join(bytes((0x1C, *tag)) + struct.pack(">H", len(text)) + text for tag, text in facts.items())


def blp(inside: bytes) -> bytes:
    """A texture of 16 x 16 pixels whose content is a JPEG file."""
    places = struct.pack("<32I", 28 + 128 + 4, *[0] * 15, len(inside), *[0] * 15)
    return b"BLP1" + struct.pack("<iIIIii", 0, 0, 16, 16, 0, 0) + places + bytes(4) + inside


def test_no_file_starts_another_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, started = tmp_path / "gs", tmp_path / "started"
    program.write_text(f"#!/bin/sh\ntouch {started}\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 16 16\n%%EndComments\nshowpage\n%%EOF\n"
    for content in (postscript, iptc(postscript)):
        (tmp_path / "photo.jpg").write_bytes(content)
        with pytest.raises(Image.UnidentifiedImageError):
            decode.decode(tmp_path / "photo.jpg", 16)
    assert not started.exists()


@pytest.mark.parametrize("kind", ["iptc", "blp", "icns"])
def test_files_that_contain_a_file_of_another_format_are_not_opened(kind: str) -> None:
    jpeg, png = contents(Image.new("L", (64, 64)), "JPEG"), contents(Image.new("RGBA", (1024, 1024)), "PNG")
    icns = b"icns" + struct.pack(">I", 16 + len(png)) + b"ic10" + struct.pack(">I", 8 + len(png)) + png
    content = {"iptc": iptc(jpeg), "blp": blp(jpeg), "icns": icns}[kind]
    with Image.open(io.BytesIO(content)) as image:  # Pillow reads it
        image.load()
    with pytest.raises(Image.UnidentifiedImageError):
        decode.decode(io.BytesIO(content), 16)
    assert decode.image_size(io.BytesIO(content)) is None


def test_the_tiles_of_a_tiff_file_count(tmp_path: Path) -> None:
    """A file of 780 kB with 16 x 16 pixels took 790 MB: its only tile has 16,384 x 16,384."""
    tags = {256: 16, 257: 16, 258: 8, 259: 8, 262: 1, 277: 1, 322: 1 << 14, 323: 1 << 14, 324: 8, 325: 8}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    path = tmp_path / "tile.tif"
    path.write_bytes(b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4))
    with Image.open(path) as image:
        assert image.size == (16, 16)
    with pytest.raises(TooLarge, match="too many pixels"):
        decode.decode(path, 16)


def waits_for(memory: int, work) -> bool:
    """Whether some work waits for memory that another thread holds, and ends when that is free."""
    thread = threading.Thread(target=work)
    with decode.MEMORY.hold(memory):
        thread.start()
        thread.join(0.5)
        waiting = thread.is_alive()
    thread.join(20)
    assert not thread.is_alive()
    return waiting


@pytest.mark.filterwarnings("ignore:Image was not the expected size")
def test_an_icon_holds_memory_when_it_is_opened() -> None:
    """Pillow decodes it then, and the PNG file in it may have 179 megapixels, whatever the icon's header says."""
    png = contents(Image.new("RGBA", (300, 300)), "PNG")
    icon = struct.pack("<HHH", 0, 1, 1) + struct.pack("<BBBBHHII", 16, 16, 0, 0, 1, 32, len(png), 22) + png
    assert waits_for(1, lambda: decode.image_size(io.BytesIO(icon)))
    assert waits_for(1, lambda: decode.decode(io.BytesIO(icon), 16))
    assert decode.decode(io.BytesIO(icon), 16).shape == (16, 16, 3)
    assert width_height_time(io.BytesIO(icon))[:2] == (300, 300)


def test_the_date_of_a_png_file_holds_memory() -> None:
    """Pillow decodes the file to find its EXIF data."""
    png = contents(Image.new("RGB", (300, 200)), "PNG")
    assert waits_for(decode.MEMORY.total, lambda: width_height_time(io.BytesIO(png)))
    assert width_height_time(io.BytesIO(png)) == (300, 200, None)
