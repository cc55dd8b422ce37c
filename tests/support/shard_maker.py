"""Small shards for tests: pictures of one colour each, whose colour says which picture it is."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image


def colour(number: int) -> tuple[int, int, int]:
    """A colour for each of 65,536 pictures."""
    return number % 256, number // 256, 77


def number_of(pixels: np.ndarray) -> np.ndarray:
    """The number of each picture from its pixels, (N, H, W, 3)."""
    return pixels[:, 0, 0, 0].astype(int) + 256 * pixels[:, 0, 0, 1].astype(int)


def png(number: int, side: int = 32) -> bytes:
    """A PNG file of one colour."""
    out = io.BytesIO()
    Image.new("RGB", (side, side), colour(number)).save(out, "PNG")
    return out.getvalue()


def write_tar(path: Path, members: dict[str, bytes]) -> Path:
    """A tar file as another program writes it: no index."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as file:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))
    return path


def write_shards(folder: Path, counts: list[int]) -> Path:
    """WebDataset shards with these numbers of pictures, of three classes."""
    number = 0
    for shard, count in enumerate(counts):
        members: dict[str, bytes] = {}
        for _ in range(count):
            members |= {f"{number:06d}.png": png(number), f"{number:06d}.cls": b"%d" % (number % 3)}
            number += 1
        write_tar(folder / f"part-{shard:03d}.tar", members)
    return folder
