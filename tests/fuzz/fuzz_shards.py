"""Fuzzes the reader of shards: `python tests/fuzz/fuzz_shards.py --minutes 10`."""

from __future__ import annotations

import tarfile
from io import BytesIO
from pathlib import Path

from harness import fuzz
from PIL import Image

import relatum.data


def png(shade: int) -> bytes:
    out = BytesIO()
    Image.new("RGB", (32, 32), (shade, 0, 0)).save(out, "PNG")
    return out.getvalue()


def tar(format: int, long: bool) -> bytes:
    out = BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as file:
        for i in range(4):
            name = f"{'long-' * 30 * long}é{i}.png"
            for path, content in ((name, png(i)), (name.replace(".png", ".cls"), b"%d" % (i % 2))):
                member = tarfile.TarInfo(path)
                member.size = len(content)
                file.addfile(member, BytesIO(content))
    return out.getvalue()


SEEDS = [tar(form, long) for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT) for long in (False, True)]


def attempt(content: bytes, number: int, folder: Path) -> None:
    (folder / "0.tar").write_bytes(content)
    with tarfile.open(folder / "1.tar", "w") as file:
        member = tarfile.TarInfo("good.png")
        member.size = len(png(9))
        file.addfile(member, BytesIO(png(9)))
    images = relatum.data.load(folder)
    assert images.images[:, 0, 0, 0].max() == 9


if __name__ == "__main__":
    fuzz("shards", SEEDS, attempt)
