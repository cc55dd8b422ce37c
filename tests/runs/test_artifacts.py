"""Artifacts: what is written is what is read, without pickles, and a broken file is an error in one line."""

from __future__ import annotations

import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from relatum.errors import RelatumError
from relatum.runs import artifacts

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (30, 8, 8, 3), dtype=np.uint8)


def test_views(tmp_path: Path) -> None:
    views = RNG.integers(0, 256, (10, 4, 8, 8, 3), dtype=np.uint8)
    path = artifacts.save_views(tmp_path, views, IMAGES[:10], [f"<{i}>" for i in range(10)])
    assert path == tmp_path / "artifacts" / "views.npz"
    actual = artifacts.load(path)
    np.testing.assert_array_equal(actual["views"], views[:8])
    np.testing.assert_array_equal(actual["originals"], IMAGES[:8])
    assert actual["names"].tolist() == [f"<{i}>" for i in range(8)]
    assert list(path.parent.iterdir()) == [path]


def test_pairs_keep_the_surest_and_the_most_confusing(tmp_path: Path) -> None:
    scores = np.array([0.9, 0.1, 0.8, 0.7, 0.2, 0.3, 0.6, 0.95, 0.4])
    targets = np.array([1, 1, 1, 1, 0, 0, 0, 0, 0])
    names = ([f"l{i}" for i in range(9)], [f"r{i}" for i in range(9)])
    actual = artifacts.load(
        artifacts.save_pairs(tmp_path, IMAGES[:9], IMAGES[9:18], scores, targets, names, per_group=2)
    )
    kept = {artifacts.PAIR_GROUPS[g]: actual["left_names"][actual["group"] == g].tolist() for g in range(4)}
    assert kept == {
        "sure-same": ["l0", "l2"],
        "sure-different": ["l4", "l5"],
        "confusing-same": ["l1", "l3"],
        "confusing-different": ["l7", "l6"],
    }
    np.testing.assert_array_equal(actual["left"][0], IMAGES[0])
    np.testing.assert_array_equal(actual["right"][0], IMAGES[9])
    assert actual["histogram"].sum(axis=1).tolist() == [5, 4]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5])
def test_few_pairs_are_shown_once(count: int) -> None:
    selected, group = artifacts.select_pairs(np.linspace(0, 1, 2 * count), np.arange(2 * count) % 2)
    assert len(selected) == len(group) == len(set(selected.tolist())) == 2 * count


def test_retrieval_keeps_only_the_images_involved(tmp_path: Path) -> None:
    query, near = np.array([3, 7]), np.array([[7, 29], [3, 0]])
    path = artifacts.save_retrieval(
        tmp_path,
        "cifar10",
        "test",
        query_index=query,
        neighbour_index=near,
        distances=np.ones((2, 2)),
        images=IMAGES,
        labels=np.arange(30),
        classes=["a", "b"],
        names=[str(i) for i in range(30)],
        tag="x",
    )
    assert path.name == "retrieval-cifar10-test-x.npz"
    actual = artifacts.load(path)
    assert actual["image_index"].tolist() == [0, 3, 7, 29]
    np.testing.assert_array_equal(actual["thumbs"], IMAGES[[0, 3, 7, 29]])
    assert actual["labels"].tolist() == [0, 3, 7, 29]
    assert actual["names"].tolist() == ["0", "3", "7", "29"]


def test_map_without_labels(tmp_path: Path) -> None:
    near = np.zeros((30, 8), int)
    path = artifacts.save_tsne(tmp_path, "photos", "train", xy=RNG.normal(size=(30, 2)), thumbs=IMAGES, neighbours=near)
    actual = artifacts.load(path)
    assert path.name == "tsne-photos-train.npz"
    assert set(actual["labels"].tolist()) == {-1}
    assert actual["super"].size == actual["names"].size == actual["classes"].size == 0


def test_normalised_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="views must be uint8 with 5 axes"):
        artifacts.save_views(tmp_path, np.zeros((1, 2, 8, 8, 3)), IMAGES[:1])


def test_a_broken_file_or_a_pickle_is_an_error_in_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "views.npz"
    broken.write_bytes(b"PK\x03\x04 and then nothing")
    with pytest.raises(RelatumError, match=r"^views.npz cannot be read: .+$"):
        artifacts.load(broken)
    np.savez(tmp_path / "pairs.npz", left=np.array([{}], dtype=object))
    with pytest.raises(RelatumError, match=r"^pairs.npz cannot be read: the array holds Python objects"):
        artifacts.load(tmp_path / "pairs.npz")
    with pytest.raises(RelatumError, match="cannot be read"):
        artifacts.load(tmp_path / "missing.npz")


def test_an_artifact_that_unpacks_to_gigabytes_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("xy.npy", "w") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": (600 * 2**20,)}
        np.lib.format.write_array_header_1_0(file, header)
        for _ in range(600):
            file.write(bytes(2**20))
    assert path.stat().st_size < 2**20
    tracemalloc.start()
    with pytest.raises(RelatumError, match="more than the limit"):
        artifacts.load(path)
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_damaged_artifacts_raise_our_own_error(tmp_path: Path) -> None:
    """Every byte flipped in turn: the arrays are unchanged, or the error is one that the report notes."""
    arrays = {"xy": np.arange(40, dtype=np.float32).reshape(20, 2), "names": np.array(["a", "b"])}
    np.savez_compressed(tmp_path / "good.npz", **arrays)
    good = (tmp_path / "good.npz").read_bytes()
    path = tmp_path / "bad.npz"
    refused = 0
    for position in range(len(good)):
        for mask in (1, 255):
            path.write_bytes(good[:position] + bytes([good[position] ^ mask]) + good[position + 1 :])
            try:
                loaded = artifacts.load(path)
            except RelatumError:
                refused += 1
                continue
            for name in loaded.keys() & arrays.keys():
                np.testing.assert_array_equal(loaded[name], arrays[name])
    for length in range(0, len(good), 7):
        path.write_bytes(good[:length])
        with pytest.raises(RelatumError):
            artifacts.load(path)
    assert refused > len(good) // 2
