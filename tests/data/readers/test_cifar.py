from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from python2 import python2_pickle

import relatum.data
from relatum.errors import InputError

REAL = os.environ.get("RELATUM_DATA", "")


def rows(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, 3072), dtype=np.uint8)


@pytest.fixture
def cifar10(tmp_path: Path) -> Path:
    place = tmp_path / "root" / "cifar-10-batches-py"
    place.mkdir(parents=True)
    for i, name in enumerate([f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]):
        content = {b"data": rows(4, i), b"labels": [i, 9, 0, 3], b"batch_label": name.encode()}
        (place / name).write_bytes(python2_pickle(content))
    (place / "batches.meta").write_bytes(python2_pickle({b"label_names": [f"c{i}".encode() for i in range(10)]}))
    return place.parent


@pytest.fixture
def cifar100(tmp_path: Path) -> Path:
    place = tmp_path / "root" / "cifar-100-python"
    place.mkdir(parents=True)
    for i, name in enumerate(("train", "test")):
        content = {b"data": rows(3, i), b"fine_labels": [99, i, 5], b"coarse_labels": [19, i, 2]}
        (place / name).write_bytes(python2_pickle(content))
    meta = {
        b"fine_label_names": [b"f%d" % i for i in range(100)],
        b"coarse_label_names": [b"k%d" % i for i in range(20)],
    }
    (place / "meta").write_bytes(python2_pickle(meta))
    return place.parent


def test_cifar10(cifar10: Path) -> None:
    train, test = (relatum.data.load("cifar10", split, root=cifar10) for split in ("train", "test"))
    assert len(train) == 20
    assert train.images.dtype == np.uint8
    assert train.images.flags.c_contiguous
    assert train.labels.tolist() == [x for i in range(5) for x in (i, 9, 0, 3)]
    assert train.labels.dtype == np.int64
    assert train.classes == tuple(f"c{i}" for i in range(10))
    assert (train.mean, train.std, train.pad, train.side) == ((0.491, 0.482, 0.447), (0.247, 0.243, 0.262), 4, 32)
    # an image's pixels by hand: red, then green, then blue planes, each row by row
    raw = rows(4, 2)[1]
    for y, x, channel in ((0, 0, 0), (5, 7, 1), (31, 30, 2)):
        assert train.images[9, y, x, channel] == raw[channel * 1024 + y * 32 + x]
    assert len(test) == 4
    assert test.images[0, 1, 0, 0] == rows(4, 5)[0, 32]


def test_the_root_may_be_the_folder_itself(cifar10: Path) -> None:
    assert len(relatum.data.load("cifar10", root=cifar10 / "cifar-10-batches-py")) == 20


def test_cifar100_fine_and_coarse(cifar100: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELATUM_DATA", str(cifar100))
    fine, coarse = relatum.data.load("cifar100", "test"), relatum.data.load("cifar100-20", "test")
    assert fine.labels.tolist() == [99, 1, 5]
    assert coarse.labels.tolist() == [19, 1, 2]
    assert (fine.num_classes, coarse.num_classes) == (100, 20)
    assert coarse.classes[3] == "k3"
    assert np.array_equal(fine.images, coarse.images)


def test_missing_data_says_where_and_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="relatum data get cifar10") as caught:
        relatum.data.load("cifar10", root=tmp_path)
    assert str(tmp_path) in str(caught.value)
    with pytest.raises(InputError, match="relatum data get cifar100-20"):
        relatum.data.load("cifar100-20", root=tmp_path)


def test_a_missing_batch_is_named(cifar10: Path) -> None:
    (cifar10 / "cifar-10-batches-py" / "data_batch_4").unlink()
    with pytest.raises(InputError, match="data_batch_4 is missing"):
        relatum.data.load("cifar10", root=cifar10)


def test_no_such_split(cifar10: Path) -> None:
    with pytest.raises(InputError, match=r"train, test.*val_fraction"):
        relatum.data.load("cifar10", "val", root=cifar10)
    with pytest.raises(InputError, match="it has train, test"):
        relatum.data.load("cifar10", "unlabeled", root=cifar10)


def test_a_malicious_batch(cifar10: Path, tmp_path: Path) -> None:
    mark = tmp_path / "executed"

    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {mark}",)

    for name in ("data_batch_3", "batches.meta"):
        file = cifar10 / "cifar-10-batches-py" / name
        good = file.read_bytes()
        file.write_bytes(pickle.dumps({b"data": Evil(), b"labels": [], b"label_names": Evil()}, 2))
        with pytest.raises(InputError) as caught:
            relatum.data.load("cifar10", root=cifar10)
        assert caught.value.exit_code == 2
        assert str(caught.value).count("\n") == 0
        file.write_bytes(good)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ({b"labels": [1]}, "data"),
        ({b"data": np.zeros((1, 30), np.uint8), b"labels": [1]}, "data"),
        ({b"data": np.zeros((1, 3072), np.uint8), b"labels": [1, 2]}, "labels"),
        ({b"data": np.zeros((1, 3072), np.uint8), b"labels": [10]}, "labels"),
        ({b"data": np.zeros((1, 3072), np.uint8), b"labels": [b"1"]}, "labels"),
        ({b"data": np.zeros((1, 3072), np.uint8)}, "labels"),
    ],
)
def test_wrong_content(cifar10: Path, content: dict, what: str) -> None:
    (cifar10 / "cifar-10-batches-py" / "test_batch").write_bytes(python2_pickle(content))
    with pytest.raises(InputError, match=f"not a CIFAR file: '{what}'"):
        relatum.data.load("cifar10", "test", root=cifar10)


def test_wrong_names(cifar10: Path) -> None:
    (cifar10 / "cifar-10-batches-py" / "batches.meta").write_bytes(python2_pickle({b"label_names": [b"one"]}))
    with pytest.raises(InputError, match="10 names"):
        relatum.data.load("cifar10", "test", root=cifar10)


@pytest.mark.data
@pytest.mark.skipif(not (Path(REAL) / "cifar-10-batches-py").is_dir(), reason="no real CIFAR-10 in $RELATUM_DATA")
def test_real_cifar10() -> None:
    train = relatum.data.load("cifar10", root=Path(REAL))
    assert len(train) == 50_000
    assert np.bincount(train.labels).tolist() == [5000] * 10
    mean = train.images.reshape(-1, 3).mean(0) / 255
    assert mean == pytest.approx([0.4914, 0.4822, 0.4465], abs=1e-4)  # as published


def test_info_does_not_hide_a_damaged_batch(cifar10: Path) -> None:
    folder = cifar10 / "cifar-10-batches-py"
    whole = relatum.data.info("cifar10", root=cifar10)
    assert set(whole["splits"]) == {"train", "test"}
    good = (folder / "data_batch_3").read_bytes()
    (folder / "data_batch_3").write_bytes(good[:-100])
    with pytest.raises(InputError, match="data_batch_3 is truncated"):
        relatum.data.info("cifar10", root=cifar10)
    (folder / "data_batch_3").unlink()
    with pytest.raises(InputError, match="data_batch_3 is missing"):
        relatum.data.info("cifar10", root=cifar10)
    (folder / "data_batch_3").write_bytes(good)
    (folder / "test_batch").unlink()  # a split that is not there at all is left out
    assert set(relatum.data.info("cifar10", root=cifar10)["splits"]) == {"train"}
