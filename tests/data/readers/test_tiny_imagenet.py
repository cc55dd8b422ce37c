from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import relatum.data
from relatum.errors import InputError

WNIDS = ["n02", "n01", "n03"]


@pytest.fixture
def root(tmp_path: Path, picture) -> Path:
    place = tmp_path / "root" / "tiny-imagenet-200"
    for i, wnid in enumerate(WNIDS):
        for j in range(2):
            picture(place / "train" / wnid / "images" / f"{wnid}_{j}.JPEG", 64, 64, seed=10 * i + j)
        (place / "train" / wnid / f"{wnid}_boxes.txt").write_text("x\t0\t0\t1\t1\n")
    Image.fromarray(np.full((64, 64), 99, np.uint8)).save(place / "train" / "n03" / "images" / "grey.JPEG")
    for j in range(3):
        picture(place / "val" / "images" / f"val_{j}.JPEG", 64, 64, seed=50 + j)
    rows = "".join(f"val_{j}.JPEG\t{wnid}\t0\t0\t62\t57\n" for j, wnid in enumerate(("n03", "n01", "n01")))
    (place / "val" / "val_annotations.txt").write_text(rows)
    (place / "wnids.txt").write_text("\n".join(WNIDS) + "\n")
    (place / "words.txt").write_text("n01\tgoldfish, Carassius auratus\nn02\tfire salamander\nn99\tunused\n")
    return place.parent


def test_train(root: Path) -> None:
    train = relatum.data.load("tiny-imagenet", root=root)
    assert len(train) == 7
    assert train.classes == ("goldfish", "fire salamander", "n03")  # by their WordNet ids
    assert train.labels.tolist() == [0, 0, 1, 1, 2, 2, 2]
    assert (train.side, train.pad, train.mean, train.std) == (64, 8, (0.5,) * 3, (0.25,) * 3)
    grey = train.images[train.files.index("n03/images/grey.JPEG")]
    assert np.abs(grey.astype(int) - 99).max() <= 1
    assert train.skipped == ()


def test_val_serves_as_test_in_both_layouts(root: Path) -> None:
    test = relatum.data.load("tiny-imagenet", "test", root=root)
    assert test.labels.tolist() == [2, 0, 0]
    place = root / "tiny-imagenet-200" / "val"
    for j, wnid in enumerate(("n03", "n01", "n01")):  # as people rearrange it
        (place / wnid).mkdir(exist_ok=True)
        (place / "images" / f"val_{j}.JPEG").rename(place / wnid / f"val_{j}.JPEG")
    (place / "images").rmdir()
    again = relatum.data.load("tiny-imagenet", "test", root=root)
    order = np.argsort([Path(f).name for f in again.files])
    assert again.labels[order].tolist() == [2, 0, 0]
    assert np.array_equal(again.images[order], test.images)
    with pytest.raises(InputError, match="no 'val' split; it has train, test"):
        relatum.data.load("tiny-imagenet", "val", root=root)


def test_a_script_that_rearranged_val_may_leave_an_empty_folder(root: Path) -> None:
    place = root / "tiny-imagenet-200" / "val"
    for j, wnid in enumerate(("n03", "n01", "n01")):
        (place / wnid / "images").mkdir(parents=True, exist_ok=True)
        (place / "images" / f"val_{j}.JPEG").rename(place / wnid / "images" / f"val_{j}.JPEG")
    test = relatum.data.load("tiny-imagenet", "test", root=root)
    assert test.labels.tolist() == [0, 0, 2]  # in the order of the folders


def test_without_the_lists(root: Path) -> None:
    for name in ("wnids.txt", "words.txt"):
        (root / "tiny-imagenet-200" / name).unlink()
    assert relatum.data.load("tiny-imagenet", root=root).classes == ("n01", "n02", "n03")


def test_a_broken_picture_is_listed(root: Path) -> None:
    (root / "tiny-imagenet-200" / "train" / "n01" / "images" / "n01_1.JPEG").write_bytes(b"")
    train = relatum.data.load("tiny-imagenet", root=root)
    assert train.labels.tolist() == [0, 1, 1, 2, 2, 2]
    assert [s.path for s in train.skipped] == ["n01/images/n01_1.JPEG"]
    with pytest.raises(InputError, match="strict=True"):
        relatum.data.load("tiny-imagenet", root=root, strict=True)


def test_errors_are_reported(root: Path, tmp_path: Path, picture) -> None:
    place = root / "tiny-imagenet-200"
    with pytest.raises(InputError, match="relatum data get tiny-imagenet"):
        relatum.data.load("tiny-imagenet", root=tmp_path)
    stray = picture(place / "val" / "images" / "stray.JPEG")
    with pytest.raises(InputError, match=r"stray\.JPEG belongs to none of the 3 classes"):
        relatum.data.load("tiny-imagenet", "test", root=root)
    stray.unlink()
    (place / "val" / "val_annotations.txt").write_text("no tabs here\n")
    with pytest.raises(InputError, match="tabs"):
        relatum.data.load("tiny-imagenet", "test", root=root)
    (place / "val" / "val_annotations.txt").unlink()
    with pytest.raises(InputError, match=r"val_annotations\.txt cannot be read"):
        relatum.data.load("tiny-imagenet", "test", root=root)
    (place / "val").rename(place / "away")
    with pytest.raises(InputError, match="val contains no images"):
        relatum.data.load("tiny-imagenet", "test", root=root)
    for file in (place / "train").rglob("*.JPEG"):
        file.write_bytes(b"")
    with pytest.raises(InputError, match="no readable image"):
        relatum.data.load("tiny-imagenet", root=root)
    (place / "wnids.txt").unlink()
    (place / "train").rename(place / "gone")
    (place / "wnids.txt").mkdir()
    with pytest.raises(InputError, match="cannot be read"):
        relatum.data.load("tiny-imagenet", root=root)
