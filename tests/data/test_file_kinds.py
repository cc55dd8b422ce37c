"""Files that a folder of photos holds besides JPEG and PNG."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from relatum.data import folder, read_images
from relatum.data.decode import extensions
from relatum.data.file_kinds import kind_by_content
from relatum.errors import InputError


def test_photographs_that_need_another_tool_are_counted_with_advice(tmp_path: Path) -> None:
    Image.new("RGB", (40, 40)).save(tmp_path / "a.png")
    for name in ("b.NEF", "c.svg", "notes.txt"):
        (tmp_path / name).write_bytes(b"x")
    listing = folder.scan(tmp_path)
    assert listing.files == ["a.png"]
    assert {item.path: item.reason.split(";")[0] for item in listing.skipped} == {
        "b.NEF": "a camera's RAW file",
        "c.svg": "a vector drawing without pixels",
    }


def test_heic_says_what_to_install_or_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.heic").write_bytes(b"x")
    listing = folder.scan(tmp_path)
    if ".heic" in extensions():
        assert listing.files == ["a.heic"]
    else:
        assert "pip install pillow-heif" in listing.skipped[0].reason


@pytest.mark.skipif(".heic" in extensions(), reason="pillow-heif is installed")
def test_a_single_file_gets_the_same_advice(tmp_path: Path) -> None:
    heic = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(200)
    for name in ("a.heic", "b.jpg"):  # phones and messengers name HEIC files .jpg
        (tmp_path / name).write_bytes(heic)
        with pytest.raises(InputError, match=r"cannot be read: HEIC .* pip install pillow-heif"):
            read_images([tmp_path / name])
    (tmp_path / "c.NEF").write_bytes(b"x" * 300)
    with pytest.raises(InputError, match="a camera's RAW file"):
        read_images([tmp_path / "c.NEF"])
    Image.new("RGB", (40, 40)).save(tmp_path / "d.png")
    reasons = {item.path: item.reason for item in folder.load(tmp_path).skipped}
    assert "pillow-heif" in reasons["b.jpg"]


def test_content_decides_where_there_is_no_extension(tmp_path: Path) -> None:
    Image.new("RGB", (40, 40), "red").save(tmp_path / "IMG_0001", "JPEG")
    (tmp_path / "README").write_text("BMX is a sport, and this is no picture")
    assert folder.scan(tmp_path).files == ["IMG_0001"]
    assert folder.load(tmp_path).images.shape == (1, 40, 40, 3)


@pytest.mark.parametrize("kind", ["PNG", "GIF", "BMP", "TIFF", "WEBP"])
def test_common_formats_are_recognised(tmp_path: Path, kind: str) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "x", kind)
    assert kind_by_content(tmp_path / "x") == ".image"
    assert kind_by_content(tmp_path) is None


def test_heic_without_extension_is_counted_too(tmp_path: Path) -> None:
    (tmp_path / "IMG_0002").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0")
    (tmp_path / "clip").write_bytes(b"\0\0\0\x18ftypisom\0\0\0\0")  # a video
    listing = folder.scan(tmp_path)
    if ".heic" in extensions():
        assert listing.files == ["IMG_0002"]
    else:
        assert listing.files == []
        assert [item.path for item in listing.skipped] == ["IMG_0002"]
        assert "pip install pillow-heif" in listing.skipped[0].reason


def test_folders_of_thumbnails_are_not_photos(tmp_path: Path) -> None:
    for name in ("@eaDir", ".thumbnails", "holiday"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (40, 40)).save(tmp_path / name / "a.png")
    assert folder.scan(tmp_path).files == ["holiday/a.png"]
