from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import relatum.data
from relatum.data import decode
from relatum.data.decoding_memory import Budget, TooLarge, decoding_bytes


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
            patch.setattr(decode, "_BAND_PIXELS", 40 * 7)
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
