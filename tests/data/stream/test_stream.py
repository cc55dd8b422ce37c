"""Streamed images: the pixels, labels and names of decoded ones; indexes; URLs; damage."""

from __future__ import annotations

import errno
import io
import json
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from shard_maker import number_of, png, write_shards, write_tar

import relatum.data
from relatum.data import folder, subsets
from relatum.data.fingerprint import fingerprint
from relatum.data.stream.images import StreamedImages, is_streamed
from relatum.data.stream.store import LocalShards
from relatum.errors import InputError, RelatumError

INDEX = ("relatum-index.json", "relatum-index.names", "relatum-index.samples")


def stream(data: Path | str, **options) -> relatum.data.ImageSet:
    return relatum.data.load(data, storage="stream", **options)


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    return write_shards(tmp_path / "shards", [20, 5, 30, 1])


def test_pixels_labels_names_and_statistics_are_those_of_decoded_images(shards: Path) -> None:
    decoded, streamed = relatum.data.load(shards), stream(shards)
    assert is_streamed(streamed.images)
    assert streamed.images.shape == decoded.images.shape
    assert np.array_equal(streamed.images[:], decoded.images[np.argsort(number_of(decoded.images))])
    assert streamed.labels is not None
    assert streamed.labels.tolist() == [n % 3 for n in range(56)]
    assert (streamed.classes, streamed.mean, streamed.std, streamed.pad) == (
        decoded.classes,
        decoded.mean,
        decoded.std,
        decoded.pad,
    )
    assert streamed.files is not None
    assert streamed.files[41] == "000041.png"
    assert number_of(streamed.images[np.array([50, 3, 3])]).tolist() == [50, 3, 3]
    assert number_of(streamed.images[5][None]).tolist() == [5]


def test_a_packed_folder_has_the_same_splits_and_classes(tmp_path: Path, picture) -> None:
    for split in ("train", "test"):
        for name in ("cat", "dög"):
            for i in range(4):
                picture(tmp_path / "photos" / split / name / f"{i}.png", seed=i + len(split) + len(name))
    folder.shard(tmp_path / "photos", tmp_path / "shards", size=10_000, seed=0)
    assert all((tmp_path / "shards" / name).is_file() for name in INDEX)
    for split in ("train", "test"):
        decoded, streamed = (relatum.data.load(tmp_path / "shards", split, storage=s) for s in ("map", "stream"))
        assert decoded.files is not None
        assert streamed.files is not None
        assert decoded.labels is not None
        assert streamed.labels is not None
        places = [list(decoded.files).index(f"{split}/{f.removeprefix(split + '/')}") for f in streamed.files]
        assert places != sorted(places)  # packed in random order
        assert np.array_equal(streamed.images[:], decoded.images[places])
        assert streamed.labels.tolist() == decoded.labels[places].tolist()
        assert streamed.classes == decoded.classes == ("cat", "dög")


@pytest.mark.parametrize("names", [("bird", "cat"), ("cat",)])
def test_a_class_has_one_label_in_all_splits(tmp_path: Path, picture, names: tuple[str, ...]) -> None:
    for split, classes in (("train", ("ant", "bird", "cat")), ("test", names)):
        for name in classes:
            picture(tmp_path / "photos" / split / name / "1.png", seed=len(split) + len(name))
    folder.shard(tmp_path / "photos", tmp_path / "shards")
    decoded, streamed = (relatum.data.load(tmp_path / "shards", "test", storage=s) for s in ("map", "stream"))
    assert streamed.classes == decoded.classes == ("ant", "bird", "cat")
    assert streamed.labels is not None
    assert decoded.labels is not None
    assert streamed.labels.tolist() == decoded.labels.tolist()


def test_a_class_by_number_has_one_label_in_all_splits(tmp_path: Path) -> None:
    members = {}
    for split, numbers in (("train", (3, 7, 12)), ("test", (7, 12))):
        for number in numbers:
            members |= {f"{split}/{number}.png": png(number), f"{split}/{number}.cls": b"%d" % number}
    write_tar(tmp_path / "shards" / "0.tar", members)
    for storage in ("map", "stream"):  # decoded at once, the images of `test` were read as a part of `train`
        train, test = (relatum.data.load(tmp_path / "shards", split, storage=storage) for split in ("train", "test"))
        assert train.labels is not None
        assert test.labels is not None
        assert (train.classes, train.labels.tolist()) == (("03", "07", "12"), [0, 1, 2])
        assert (test.classes, test.labels.tolist()) == (("03", "07", "12"), [1, 2])


def test_a_split_with_other_classes_than_train_is_refused(tmp_path: Path, picture) -> None:
    for name in ("train/ant", "train/bird", "test/bird", "test/cow"):
        picture(tmp_path / "photos" / name / "1.png")
    folder.shard(tmp_path / "photos", tmp_path / "shards")
    for storage in ("map", "stream"):
        with pytest.raises(InputError, match="test has images in 'cow', which is not a class of train"):
            relatum.data.load(tmp_path / "shards", "test", storage=storage)


def test_subsets_stay_streams(shards: Path) -> None:
    images = stream(shards)
    rest, held = subsets.split_validation(images, 0.25, seed=1)
    assert is_streamed(rest.images)
    assert is_streamed(held.images)
    seen = [*number_of(rest.images[:]), *number_of(held.images[:])]
    assert sorted(seen) == list(range(56))
    assert rest.files is not None
    assert [int(name[:6]) for name in rest.files] == number_of(rest.images[:]).tolist()
    assert rest.images.shard_counts().sum() == 42
    assert fingerprint(rest) != fingerprint(images)
    assert fingerprint(images) == fingerprint(stream(shards))


def test_shards_without_an_index_are_listed_once(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream(shards)
    monkeypatch.setattr("relatum.data.stream.index.list_images", None)  # would fail if it were called
    assert len(stream(shards)) == 56
    assert len(relatum.data.load(shards)) == 56
    monkeypatch.undo()
    write_shards(shards, [20, 5, 30, 2])
    assert len(stream(shards)) == 57


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """Four shards of about 14 pictures, with their index."""
    for number in range(56):
        path = tmp_path / "photos" / "ab"[number % 2] / f"{number:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(number))
    assert len(folder.shard(tmp_path / "photos", tmp_path / "packed", size=15_000)) >= 3
    return tmp_path / "packed"


def test_lost_and_truncated_shards_are_named_skipped_and_counted(packed: Path) -> None:
    whole = stream(packed)
    (packed / "000000.tar").unlink()
    cut = packed / "000001.tar"
    cut.write_bytes(cut.read_bytes()[:6_000])
    images = stream(packed)
    reasons = {s.path: s.reason for s in images.skipped}
    lost = int(reasons["000000.tar"].split("its ")[1].split()[0])
    gone = int(reasons["000001.tar"].split("cut off: ")[1].split()[0])
    assert lost > 5
    assert gone > 5
    assert len(images) == len(whole) - lost - gone
    assert set(number_of(images.images[:])) < set(range(56))
    assert len(set(number_of(images.images[:]))) == len(images)
    with pytest.raises(InputError, match=r"2 files .* strict"):
        stream(packed, strict=True)
    assert "000000.tar" in {s.path for s in relatum.data.load(packed, storage="map").skipped}


def test_foreign_files_are_named(shards: Path) -> None:
    (shards / "part-001.tar").write_bytes(b"this is no tar file" * 1000)
    (shards / "notes.txt").write_text("hello")
    images = stream(shards)
    assert len(images) == 51
    assert [s.path for s in images.skipped] == ["part-001.tar"]
    with pytest.raises(InputError, match=r"part-001\.tar"):
        stream(shards, strict=True)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_header_that_states_a_terabyte(kind: bytes, shards: Path) -> None:
    """The set could not be read at all, for lack of memory."""
    evil = tarfile.TarInfo("evil")
    evil.type, evil.size = kind, 1 << 40
    path = sorted(shards.glob("*.tar"))[-1]
    with tarfile.open(path) as tar:
        end = max(member.offset_data + -(-member.size // 512) * 512 for member in tar)
    path.write_bytes(path.read_bytes()[:end] + evil.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    images = stream(shards)
    assert len(images) == 56
    assert "a header of" in images.skipped[0].reason


def test_an_image_that_cannot_be_decoded_is_replaced_by_the_next_one(tmp_path: Path, capsys) -> None:
    good = {f"{n}.png": png(n) for n in range(4)}
    write_tar(
        tmp_path / "s" / "0.tar",
        {"0.png": png(0), "1.png": b"no picture", "2.png": png(2)[:60], "3.png": good["3.png"]},
    )
    images = stream(tmp_path / "s").images
    assert isinstance(images, StreamedImages)
    pixels, actual = images.rows(np.array([1, 0, 2]))
    assert number_of(pixels).tolist() == [3, 0, 3]
    assert actual.tolist() == [3, 0, 3]
    assert [s.path for s in images.damaged] == ["1.png", "2.png"]
    assert "1.png cannot be read" in capsys.readouterr().err
    with pytest.raises(InputError, match=r"1\.png .* strict"):
        stream(tmp_path / "s", strict=True).images[:]


def test_a_damaged_or_outdated_index_is_not_used(packed: Path, capsys) -> None:
    names = packed / "relatum-index.names"
    names.write_bytes(names.read_bytes().replace(b"05.png", b"5x.png"))
    assert sorted(number_of(stream(packed).images[:])) == list(range(56))
    assert "changed since" in capsys.readouterr().err
    (packed / "relatum-index.json").write_text("{")
    assert len(stream(packed)) == 56
    assert "not readable" in capsys.readouterr().err


def test_shards_that_were_packed_anew_are_listed_again(packed: Path) -> None:
    first, second = packed / "000000.tar", packed / "000001.tar"
    a, b = first.read_bytes(), second.read_bytes()
    size = max(len(a), len(b))
    for path, content in ((first, b), (second, a)):  # same sizes as listed, other members
        path.write_bytes(content.ljust(size, b"\0")[: path.stat().st_size])
    images = stream(packed)
    numbers = [int(name.split("/")[1][:2]) for name in images.files or ()]
    assert number_of(images.images[:]).tolist() == numbers


def test_what_cannot_be_streamed_is_refused(tmp_path: Path, picture) -> None:
    picture(tmp_path / "photos" / "1.png")
    with pytest.raises(InputError, match="only tar shards can"):
        stream(tmp_path / "photos")
    with pytest.raises(InputError, match="shapes cannot be streamed"):
        stream("shapes")


def test_shards_without_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"contains no readable image\.$"):
        stream(write_tar(tmp_path / "a.tar", {"notes.txt": b"hello"}))


def test_shards_that_would_fill_the_disk_are_streamed(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_streamed(relatum.data.load(shards).images)
    monkeypatch.setattr("relatum.data.stream.loading._DISK_SHARE", 1e-9)
    assert is_streamed(relatum.data.load(shards).images)


def test_some_of_the_shards_that_an_index_lists(packed: Path, tmp_path: Path) -> None:
    """The index numbers all shards; those that are read have other numbers."""
    whole = stream(packed)
    assert whole.files is not None
    number = dict(zip(whole.files, number_of(whole.images[:]).tolist(), strict=True))
    one = stream(packed / "000001.tar", strict=True)  # the others were not asked for, so they are not missing
    assert 5 < len(one) < 20
    assert one.files is not None
    assert number_of(one.images[:]).tolist() == [number[file] for file in one.files]
    assert len(relatum.data.load(packed / "000001.tar", strict=True)) == len(one)


def test_a_device_in_the_place_of_an_index(packed: Path, capsys) -> None:
    document = json.loads((packed / INDEX[0]).read_text())
    document |= {"images": 0, "letters": 0, "firsts": [0] * len(document["firsts"])}
    (packed / INDEX[0]).write_text(json.dumps(document))
    for make in (lambda path: path.symlink_to("/dev/zero"), os.mkfifo):
        (packed / INDEX[2]).unlink()
        make(packed / INDEX[2])
        assert len(stream(packed)) == 56
        assert "listed again" in " ".join(capsys.readouterr().err.split())


class _Broken(io.BytesIO):
    """A file on a disk that does not give its bytes."""

    def read(self, size: int | None = -1) -> bytes:
        raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("reason", ["Input/output error", "Permission denied"])
def test_a_shard_that_the_disk_does_not_give_is_an_error(
    reason: str, shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was recorded as damaged in the list of images, which is kept, and its images were lost for all later runs."""

    def broken(self: LocalShards, number: int) -> io.BytesIO:
        if reason == "Permission denied":
            raise PermissionError(errno.EACCES, reason)
        return _Broken()

    monkeypatch.setattr(LocalShards, "open", broken)
    with pytest.raises(RelatumError, match=f"tar could not be read: {reason}"):
        stream(shards)
    monkeypatch.undo()
    assert (len(stream(shards)), stream(shards).skipped) == (56, ())
