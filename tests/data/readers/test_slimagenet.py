from __future__ import annotations

from pathlib import Path

import pytest

import relatum.data
from relatum.data.readers.class_folders import class_folders
from relatum.errors import InputError


@pytest.fixture
def root(tmp_path: Path, picture) -> Path:
    place = tmp_path / "root" / "SlimageNet64"
    for split, n in (("train", 3), ("val", 1), ("test", 2)):
        for name in ("n02", "n01"):
            for i in range(n):
                picture(place / split / name / f"{i}.jpg", 64, 64, seed=i)
    return place.parent


def test_splits(root: Path) -> None:
    parts = {split: relatum.data.load("slimagenet", split, root=root) for split in ("train", "val", "test")}
    assert {split: len(part) for split, part in parts.items()} == {"train": 6, "val": 2, "test": 4}
    assert parts["test"].labels.tolist() == [0, 0, 1, 1]
    assert parts["train"].classes == parts["val"].classes == ("n01", "n02")
    assert (parts["val"].side, parts["val"].pad, parts["val"].std) == (64, 8, (0.25,) * 3)
    assert len(relatum.data.load("slimagenet", root=root / "SlimageNet64")) == 6


def test_missing(root: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="relatum data get slimagenet"):
        relatum.data.load("slimagenet", root=tmp_path)
    with pytest.raises(InputError, match="missing"):
        class_folders(tmp_path / "absent")
    with pytest.raises(InputError, match="it has train, val, test"):
        relatum.data.load("slimagenet", "unlabeled", root=root)
