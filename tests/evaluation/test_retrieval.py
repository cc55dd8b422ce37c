from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from relatum.data.imageset import ImageSet
from relatum.errors import InputError
from relatum.evaluation import evaluate, retrieval
from relatum.evaluation.retrieval import draw_queries, retrieve
from relatum.runs import artifacts

World = dict[tuple[str, str], ImageSet]


def oracle(z: np.ndarray, labels: np.ndarray, queries: np.ndarray, top: int, classes: int) -> tuple[float, np.ndarray]:
    """Brute force: one query at a time, every distance, ties by index."""
    counts = np.zeros((classes, classes))
    shares = []
    for q in queries:
        distance = ((z.astype(np.float64) - z[q].astype(np.float64)) ** 2).sum(1)
        order = [i for i in sorted(range(len(z)), key=lambda i: (distance[i], i)) if i != q][:top]
        for i in order:
            counts[labels[q], labels[i]] += 1
        shares.append(np.mean([labels[i] == labels[q] for i in order]))
    sums = counts.sum(1, keepdims=True)
    return 100 * float(np.mean(shares)), 100 * counts / np.where(sums > 0, sums, 1)


@pytest.mark.parametrize("kind", ["normal", "ties"])
def test_equals_brute_force(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    z = random.normal(size=(150, 5)) if kind == "normal" else random.integers(0, 2, (150, 4))
    z = z.astype(np.float32)
    labels = random.integers(0, 4, 150)
    queries = draw_queries(labels, 20, seed=3)
    monkeypatch.setattr(retrieval, "_BLOCK", 7)
    actual = retrieve(z[queries], labels[queries], z, labels, classes=5, exclude=queries, tops=(1, 10, 100))
    for top in (1, 10, 100):
        accuracy, matrix = oracle(z, labels, queries, top, 5)
        assert actual.hits[top] == pytest.approx(accuracy, abs=1e-9)
        np.testing.assert_allclose(actual.matrices[top], matrix, atol=1e-9)


def test_a_separate_gallery_excludes_nothing() -> None:
    z = np.eye(4, dtype=np.float32)
    labels = np.arange(4)
    actual = retrieve(z, labels, z, labels, classes=4, tops=(1,))
    assert actual.hits == {1: 100.0}
    np.testing.assert_array_equal(actual.matrices[1], 100 * np.eye(4))


def test_queries_are_balanced_seeded_and_all_where_there_are_few() -> None:
    labels = np.repeat([0, 1, 2], [50, 30, 4])
    selected = draw_queries(labels, 10, seed=1)
    assert np.bincount(labels[selected]).tolist() == [10, 10, 4]
    assert len(set(selected.tolist())) == 24
    np.testing.assert_array_equal(selected, draw_queries(labels, 10, seed=1))
    assert selected.tolist() != draw_queries(labels, 10, seed=2).tolist()


def test_protocol(run: Path) -> None:
    result = evaluate("retrieval", run, data="toy")
    assert result.accuracy == result.details["top10"]
    assert result.details["top1000"] == pytest.approx(100 * 19 / 79)  # everything else was retrieved
    assert 40 < result.details["top10"] <= 100
    assert result.settings["n_queries"] == 80
    assert result.settings["n_gallery"] == 80
    assert result.settings["excluded"] == "the query itself"
    assert result.details["retrieved"] == {"top100": 79, "top1000": 79}
    for top in ("top10", "top100", "top1000"):
        matrix = np.array(result.details["matrices"][top])
        assert matrix.shape == (4, 4)
        np.testing.assert_allclose(matrix.sum(1), 100, atol=0.01)
        assert np.diag(matrix).mean() == pytest.approx(result.details[top], abs=0.01)  # classes of equal size
    kept = artifacts.load(run / "artifacts" / "retrieval-toy-test.npz")
    assert kept["query_index"].shape == (25,)
    assert kept["neighbour_index"].shape == kept["distances"].shape == (25, 10)
    assert not (kept["neighbour_index"] == kept["query_index"][:, None]).any()
    assert (np.diff(kept["distances"], axis=1) >= 0).all()
    json.dumps(result.document(), allow_nan=False)


def test_several_seeds(run: Path) -> None:
    result = evaluate("retrieval", run, data="toy", settings={"seeds": 3, "queries_per_class": 5}, tag="three")
    values = result.details["top10_seeds"]
    assert len(set(values)) > 1
    assert result.details["top10"] == pytest.approx(np.mean(values))
    assert result.details["top10_std"] == pytest.approx(np.std(values, ddof=1))
    assert (run / "artifacts" / "retrieval-toy-test-three.npz").exists()


def test_training_set_as_gallery(run: Path, world: World) -> None:
    result = evaluate("retrieval", run, data="toy", settings={"gallery": "train"})
    assert result.n_train == 200
    assert result.settings["excluded"] == "nothing"
    kept = artifacts.load(run / "artifacts" / "retrieval-toy-test.npz")
    test, train = world["toy", "test"], world["toy", "train"]
    where = {int(n): i for i, n in enumerate(kept["image_index"])}
    query, near = int(kept["query_index"][3]), int(kept["neighbour_index"][3, 0])
    np.testing.assert_array_equal(kept["thumbs"][where[query]], test.images[query])
    np.testing.assert_array_equal(kept["thumbs"][where[near]], train.images[near - len(test)])


def test_unlabelled_folder_gives_neighbours_only(run: Path) -> None:
    result = evaluate("retrieval", run, data="bare")
    assert result.accuracy is None
    assert result.split == "train"
    assert "top10" not in result.details
    assert artifacts.load(run / "artifacts" / "retrieval-bare-train.npz")["neighbour_index"].shape == (25, 10)
    assert "%" not in result.sentence()


@pytest.mark.parametrize("protocol", ["retrieval", "tsne"])
def test_a_test_split_that_cannot_be_used_is_not_replaced_by_the_training_set(
    protocol: str, tmp_path: Path, make_run: Callable[..., Path]
) -> None:
    photos = tmp_path / "photos"
    for number, folder in enumerate(("train/a", "train/b", "test/a", "test/c")):
        (photos / folder).mkdir(parents=True)
        for value in range(3):
            Image.new("RGB", (32, 32), (80 * value, 60 * number, 0)).save(photos / folder / f"{value}.png")
    run = make_run()
    with pytest.raises(InputError, match="'c', which is not a class of train"):
        evaluate(protocol, run, data=photos)
    for file in (photos / "test").rglob("*.png"):
        file.write_bytes(b"no image")
    with pytest.raises(InputError, match="no readable image"):
        evaluate(protocol, run, data=photos)
    assert not (run / "evaluations").exists()


def test_large_images_become_thumbnails(run: Path, world: World) -> None:
    big = world["toy", "test"].subset(np.arange(12))
    world["big", "test"] = replace(big, name="big", images=np.repeat(np.repeat(big.images, 8, 1), 8, 2))
    evaluate("retrieval", run, data="big")
    assert artifacts.load(run / "artifacts" / "retrieval-big-test.npz")["thumbs"].shape[1:] == (64, 64, 3)


def test_many_classes_keep_their_matrices_in_a_file(run: Path, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrieval, "_MOST_CLASSES", 3)
    result = evaluate("retrieval", run, data="toy")
    assert "matrices" not in result.details
    with np.load(run / result.details["matrices_file"]) as kept:
        assert kept["top10"].shape == (4, 4)


def test_one_image_is_refused(run: Path, world: World, make_images: Callable[..., ImageSet]) -> None:
    world["one", "test"] = make_images(1, name="one", split="test")
    with pytest.raises(InputError, match="single image"):
        evaluate("retrieval", run, data="one")
    with pytest.raises(InputError, match="two images"):
        retrieve(np.eye(1), np.zeros(1, int), np.eye(1), np.zeros(1, int), classes=1, exclude=np.zeros(1, int))
