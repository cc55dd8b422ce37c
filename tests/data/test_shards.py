"""Images packed in tar files."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from shard_maker import png, write_tar

import relatum.data
from relatum.data import folder, shards
from relatum.data.stream import store
from relatum.errors import InputError


@pytest.fixture
def photos(tmp_path: Path, picture: Callable[..., Path]) -> Path:
    for split in ("train", "test"):
        for name in ("cat", "dög"):
            for i in range(5):
                picture(tmp_path / "photos" / split / name / f"{i}.png", seed=i + len(split) + len(name))
    (tmp_path / "photos" / "train" / "cat" / "broken.jpg").write_bytes(b"no picture")
    return tmp_path / "photos"


@pytest.mark.parametrize("split", ["train", "test"])
def test_shards_take_the_place_of_the_folder(photos: Path, tmp_path: Path, split: str) -> None:
    written = folder.shard(photos, tmp_path / "shards", size=20_000)
    assert len(written) > 1
    assert [p.name for p in written] == [f"{i:06d}.tar" for i in range(len(written))]
    plain, packed = (relatum.data.load(p, split) for p in (photos, tmp_path / "shards"))
    assert np.array_equal(plain.images, packed.images)
    assert plain.labels is not None
    assert packed.labels is not None
    assert plain.labels.tolist() == packed.labels.tolist()
    assert (plain.classes, plain.files, plain.mean, plain.std) == (
        packed.classes,
        packed.files,
        packed.mean,
        packed.std,
    )
    assert [(s.path, s.reason) for s in plain.skipped] == [(s.path, s.reason) for s in packed.skipped]


def test_same_folder_same_bytes(photos: Path, tmp_path: Path) -> None:
    first, second = (folder.shard(photos, tmp_path / name) for name in ("one", "two"))
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]


def test_a_single_tar_file_will_do(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "all.tar", {"a/1.png": png(10), "b/2.png": png(20), "notes.txt": b"hello"})
    images = relatum.data.load(path)
    assert images.files == ["a/1.png", "b/2.png"]
    assert images.classes == ("a", "b")
    assert images.images[:, 0, 0, 0].tolist() == [10, 20]


def test_classes_beside_the_pictures_as_webdataset_has_them(tmp_path: Path) -> None:
    members = {}
    for i in range(12):
        members |= {f"{i:04d}.png": png(10 * i), f"{i:04d}.cls": b"%d" % (11 - i)}
    write_tar(tmp_path / "wds" / "x-000000.tar", members)
    images = relatum.data.load(tmp_path / "wds")
    assert images.classes == tuple(f"{i:02d}" for i in range(12))
    assert images.labels is not None
    assert [11 - int(p) // 10 for p in images.images[:, 0, 0, 0]] == images.labels.tolist()


def test_pictures_beside_a_tar_file_are_a_folder_as_ever(tmp_path: Path, picture: Callable[..., Path]) -> None:
    picture(tmp_path / "mixed" / "1.png")
    write_tar(tmp_path / "mixed" / "backup.tar", {"2.png": png(1)})
    assert relatum.data.load(tmp_path / "mixed").files == ["1.png"]


def test_a_shard_that_was_cut_off_loses_only_what_is_gone(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "s" / "0.tar", {f"{i}.png": png(i) for i in range(20)})
    path.write_bytes(path.read_bytes()[:8300])
    images = relatum.data.load(tmp_path / "s")
    assert 0 < len(images) < 20
    assert images.skipped
    with pytest.raises(InputError, match="strict=True"):
        relatum.data.load(tmp_path / "s", strict=True)


def test_odd_members_are_listed_and_nothing_is_unpacked(tmp_path: Path) -> None:
    place = tmp_path / "s" / "0.tar"
    place.parent.mkdir()
    with tarfile.open(place, "w") as file:
        for name in ("../../evil.png", "good.png"):
            member = tarfile.TarInfo(name)
            member.size = len(png(3))
            file.addfile(member, io.BytesIO(png(3)))
        link = tarfile.TarInfo("link.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        file.addfile(link)
    write_tar(tmp_path / "s" / "1.tar", {"good.png": png(9)})
    images = relatum.data.load(tmp_path / "s")
    assert images.files == [str(Path("..", "..", "evil.png")), "1-good.png", "good.png"]
    assert images.images[:, 0, 0, 0].tolist() == [3, 9, 3]
    assert {s.reason for s in images.skipped} == {"not a regular file"}
    assert not list(tmp_path.rglob("evil.png"))


@pytest.mark.parametrize("inside", ["", "cat/"])
def test_shards_that_number_their_own_images_lose_none(tmp_path: Path, inside: str) -> None:
    for shard in range(3):
        members = {f"{inside}{i:04d}.png": png(50 * shard + i) for i in range(2)}
        write_tar(tmp_path / "s" / f"part-{shard}.tar", members | {"dog/own.png": png(200 + shard)})
    images = relatum.data.load(tmp_path / "s")
    assert images.skipped == ()
    assert images.files is not None
    pixels = dict(zip(images.files, images.images[:, 0, 0, 0].tolist(), strict=True))
    assert pixels == {
        **{f"{inside}{i:04d}.png": i for i in range(2)},
        **{f"{inside}part-{shard}-{i:04d}.png": 50 * shard + i for shard in (1, 2) for i in range(2)},
        **{"dog/own.png": 200, "dog/part-1-own.png": 201, "dog/part-2-own.png": 202},
    }
    assert images.classes == (("cat", "dog") if inside else ())


def test_an_image_that_was_appended_replaces_the_one_before(tmp_path: Path) -> None:
    """As it does where the tar file is unpacked."""
    place = write_tar(tmp_path / "all.tar", {"a.png": png(1), "b.png": png(2)})
    with tarfile.open(place, "a") as file:
        member = tarfile.TarInfo("a.png")
        member.size = len(png(99))
        file.addfile(member, io.BytesIO(png(99)))
    images = relatum.data.load(place)
    assert images.images[:, 0, 0, 0].tolist() == [99, 2]
    assert [(s.path, s.reason) for s in images.skipped] == [("a.png", "is in all.tar twice; the last one is read")]


def test_several_images_of_a_sample_have_its_class(tmp_path: Path) -> None:
    """In webdataset, the key of a sample ends at the first dot of the name."""
    members = {}
    for i in range(4):
        members |= {f"a.b/{i}.left.png": png(i), f"a.b/{i}.right.png": png(10 + i), f"a.b/{i}.cls": b"%d" % (i % 2)}
    images = relatum.data.load(write_tar(tmp_path / "all.tar", members))
    assert images.classes == ("0", "1")
    assert images.labels is not None
    assert images.labels.tolist() == [int(p) % 10 % 2 for p in images.images[:, 0, 0, 0]]
    assert len(images) == 8


@pytest.mark.parametrize("name", ["a.tar.gz", "a.TGZ", "a.tar.zst"])
def test_a_compressed_tar_file_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"compressed")
    with pytest.raises(InputError, match=r"is compressed: .* Unpack it first"):
        relatum.data.load(tmp_path / name)


def test_a_changed_shard_is_read_again(tmp_path: Path) -> None:
    write_tar(tmp_path / "s" / "0.tar", {"1.png": png(5)})
    assert relatum.data.load(tmp_path / "s").images[0, 0, 0, 0] == 5
    write_tar(tmp_path / "s" / "0.tar", {"1.png": png(6)})
    assert relatum.data.load(tmp_path / "s").images[0, 0, 0, 0] == 6


def test_mistakes_are_reported(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not an empty folder"):
        folder.shard(photos, photos)
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="no images to pack"):
        folder.shard(tmp_path / "none", tmp_path / "out")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "0.tar").write_bytes(b"this is no tar file" * 100)
    with pytest.raises(InputError, match="no readable image"):
        relatum.data.load(tmp_path / "bad")


def damaged_member(path: Path, size: bytes) -> None:
    """Change the size field of the second member of three, and mend the header's checksum."""
    raw = bytearray(path.read_bytes())
    place = next(i for i in range(512, len(raw), 512) if raw[i : i + 5] == b"1.png")
    raw[place + 124 : place + 136] = size
    raw[place + 148 : place + 156] = b" " * 8
    raw[place + 148 : place + 156] = b"%06o\0 " % sum(raw[place : place + 512])
    path.write_bytes(raw)


@pytest.mark.parametrize(
    "size",
    [
        b"77777777777\0",
        b"\x80\x7f" + b"\xff" * 10,
        b"\xff" * 12,
        b"\xff" * 10 + b"\xfc\0",
        b"00000000001\0",
        b"zzz" * 4,
    ],
    ids=["8 GB", "2^86", "-1", "-1024", "1", "no number"],
)
def test_an_absurd_member_is_named_and_the_others_are_read(tmp_path: Path, size: bytes) -> None:
    write_tar(tmp_path / "s" / "0.tar", {f"{i}.png": png(i) for i in range(3)})
    write_tar(tmp_path / "s" / "1.tar", {f"{i}.png": png(i) for i in range(5, 8)})
    damaged_member(tmp_path / "s" / "0.tar", size)
    images = relatum.data.load(tmp_path / "s")
    assert set(images.files) >= {"0.png", "5.png", "6.png", "7.png"}
    assert "1.png" not in images.files
    assert any(s.path in ("1.png", "0.tar") for s in images.skipped)
    with pytest.raises(InputError):
        relatum.data.load(tmp_path / "s", strict=True)


def test_more_shards_than_file_descriptors(tmp_path: Path) -> None:
    for i in range(150):
        write_tar(tmp_path / "s" / f"{i:03}.tar", {f"{i}.png": png(i)})
    code = (
        "import resource, sys, relatum.data; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))\n"
        "images = relatum.data.load(sys.argv[1]); print(len(images), len(images.skipped))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "s")], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["150", "0"], done.stderr


def test_threads_read_many_shards_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_MAX_OPEN", 3)
    paths = [write_tar(tmp_path / f"{i}.tar", {f"{i}.png": png(i)}) for i in range(12)]
    index = shards.Index(paths)
    with ThreadPoolExecutor(8) as pool:
        contents = list(pool.map(lambda i: index.read(f"{i % 12}.png").getvalue(), range(500)))
    assert all(content == png(i % 12) for i, content in enumerate(contents))
    assert len(index._store._idle) <= 3


def test_photographs_that_are_not_packed_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder of HEIC photos was packed without them, and nothing said so."""
    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "1.cr2").write_bytes(b"raw")
    with pytest.raises(InputError, match=r"contains no images to pack .*'1\.cr2', a camera's RAW file"):
        folder.shard(photos, tmp_path / "none")
    (photos / "2.png").write_bytes(png(2))
    assert len(folder.shard(photos, tmp_path / "packed")) == 1
    assert "left out 1 file that could not be read: 1.cr2: a camera's RAW file" in " ".join(
        capsys.readouterr().err.split()
    )


def test_files_that_cannot_be_packed_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(3):
        (photos / f"{number}.png").write_bytes(png(number))
    (photos / "gone.png").symlink_to("nowhere")
    os.mkfifo(photos / "pipe.png")
    folder.shard(photos, tmp_path / "packed")
    assert "left out 2 files that could not be read: gone.png" in " ".join(capsys.readouterr().err.split())
    assert len(relatum.data.load(tmp_path / "packed", strict=True)) == 3
    for number in range(3):
        (photos / f"{number}.png").unlink()
    with pytest.raises(InputError, match=r"no file could be read: gone\.png"):
        folder.shard(photos, tmp_path / "none")
    assert not list((tmp_path / "none").iterdir())
