from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import relatum.data
from relatum.data.readers import stl10
from relatum.errors import InputError

NAMES = ["airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = tmp_path / "root" / "stl10_binary"
    place.mkdir(parents=True)
    for i, (split, n) in enumerate((("train", 3), ("test", 4), ("unlabeled", 5))):
        np.random.default_rng(i).integers(0, 256, n * 27648, dtype=np.uint8).tofile(place / f"{split}_X.bin")
    np.array([1, 10, 5], np.uint8).tofile(place / "train_y.bin")
    np.array([2, 2, 2, 9], np.uint8).tofile(place / "test_y.bin")
    (place / "class_names.txt").write_text("\n".join(NAMES) + "\n")
    return place.parent


def test_splits(root: Path) -> None:
    train, test, unlabeled = (relatum.data.load("stl10", split, root=root) for split in ("train", "test", "unlabeled"))
    assert [len(s) for s in (train, test, unlabeled)] == [3, 4, 5]
    assert train.labels.tolist() == [0, 9, 4]
    assert test.labels.tolist() == [1, 1, 1, 8]
    assert train.classes == tuple(NAMES)
    assert (unlabeled.labels, unlabeled.classes) == (None, ())
    assert (train.side, train.pad, train.mean, train.std) == (96, 12, (0.5,) * 3, (0.5,) * 3)
    assert train.images.flags.c_contiguous


def test_pixels_are_column_major(root: Path) -> None:
    images = relatum.data.load("stl10", "test", root=root).images
    raw = np.fromfile(root / "stl10_binary" / "test_X.bin", np.uint8)
    for n, row, column, channel in ((0, 0, 1, 0), (2, 30, 7, 1), (3, 95, 94, 2)):
        assert images[n, row, column, channel] == raw[n * 27648 + channel * 9216 + column * 96 + row]


def test_turned_once_and_a_change_is_noticed(root: Path, own_cache: Path) -> None:
    first = relatum.data.load("stl10", root=root)
    before = [p.name for p in (own_cache / "stl10").iterdir()]
    relatum.data.load("stl10", root=root)
    assert [p.name for p in (own_cache / "stl10").iterdir()] == before
    other = 255 - np.fromfile(root / "stl10_binary" / "train_X.bin", np.uint8)
    other.tofile(root / "stl10_binary" / "train_X.bin")
    second = relatum.data.load("stl10", root=root)
    expected = 255 - np.asarray(first.images)
    assert np.array_equal(second.images, expected)
    del second  # a map of a file that is damaged under it cannot be read
    [entry] = (own_cache / "stl10").iterdir()
    (entry / "images.npy").write_bytes(b"damaged")
    assert np.array_equal(relatum.data.load("stl10", root=root).images, expected)


def test_parts_that_are_missing_or_damaged(root: Path, tmp_path: Path) -> None:
    place = root / "stl10_binary"
    with pytest.raises(InputError, match="relatum data get stl10"):
        relatum.data.load("stl10", root=tmp_path)
    (place / "unlabeled_X.bin").unlink()
    with pytest.raises(InputError, match=r"unlabeled_X\.bin cannot be read"):
        relatum.data.load("stl10", "unlabeled", root=root)
    facts = relatum.data.info("stl10", root=root)
    assert sorted(facts["splits"]) == ["test", "train"]
    np.array([1, 2], np.uint8).tofile(place / "train_y.bin")
    with pytest.raises(InputError, match="3 labels"):
        relatum.data.load("stl10", root=root)
    np.array([0, 1, 11], np.uint8).tofile(place / "train_y.bin")
    with pytest.raises(InputError, match="from 1 to 10"):
        relatum.data.load("stl10", root=root)
    (place / "class_names.txt").write_text("one two")
    with pytest.raises(InputError, match="10 names"):
        relatum.data.load("stl10", "test", root=root)
    (place / "class_names.txt").unlink()
    with pytest.raises(InputError, match="cannot be read"):
        relatum.data.load("stl10", "test", root=root)
    np.zeros(27649, np.uint8).tofile(place / "test_X.bin")
    with pytest.raises(InputError, match="truncated"):
        relatum.data.load("stl10", "test", root=root)


def test_a_file_that_cannot_be_read_is_not_a_problem_of_the_cache(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*arguments: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(stl10.np, "memmap", denied)
    with pytest.raises(InputError, match=r"train_X\.bin cannot be read: Permission denied"):
        relatum.data.load("stl10", "train", root=root)
