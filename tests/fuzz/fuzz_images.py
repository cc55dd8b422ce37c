"""Fuzzes folders of images: `python tests/fuzz/fuzz_images.py --minutes 10`."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
from harness import fuzz
from PIL import Image

import relatum.data

rng = np.random.default_rng(0)
PIXELS = rng.integers(0, 256, (24, 20, 3), dtype=np.uint8)
FORMATS = [
    ("RGB", ".png", {}),
    ("P", ".png", {}),
    ("LA", ".png", {}),
    ("I;16", ".png", {}),
    ("RGB", ".jpg", {}),
    ("RGB", ".jpg", {"progressive": True}),
    ("CMYK", ".jpg", {}),
    ("P", ".gif", {}),
    ("RGB", ".webp", {}),
    ("RGB", ".tif", {}),
    ("F", ".tif", {}),
    ("RGB", ".tif", {"compression": "tiff_lzw"}),
    ("RGB", ".bmp", {}),
    ("RGB", ".ppm", {}),
    ("RGB", ".tga", {}),
    ("RGB", ".jp2", {}),
    ("RGB", ".ico", {}),
    ("RGB", ".pcx", {}),
    ("RGB", ".dds", {}),
    ("RGB", ".sgi", {}),
    ("RGB", ".avif", {}),
]


def encoded(mode: str, ending: str, options: dict) -> bytes:
    out = BytesIO()
    Image.fromarray(PIXELS).convert("L" if mode == "I;16" else mode).convert(mode).save(
        out, Image.registered_extensions()[ending], **options
    )
    return out.getvalue()


Image.init()
USABLE = [row for row in FORMATS if Image.registered_extensions().get(row[1]) in Image.SAVE]
SEEDS = [encoded(*row) for row in USABLE]


def attempt(content: bytes, number: int, folder: Path) -> None:
    (folder / f"mutated{USABLE[number][1]}").write_bytes(content)
    Image.fromarray(PIXELS[:20]).save(folder / "good.png")
    images = relatum.data.load(folder, side=32)
    assert images.files is not None
    assert len(images) + len(images.skipped) == 2
    assert "good.png" in images.files


if __name__ == "__main__":
    fuzz("images", SEEDS, attempt)
