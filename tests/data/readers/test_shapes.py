from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

import relatum.data
from relatum.data.readers import outlines, shapes
from relatum.data.sets import shapes as facts


@pytest.fixture(scope="module")
def drawn() -> tuple[np.ndarray, np.ndarray]:
    return shapes.draw(4000, seed=7)


def test_the_same_seed_draws_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    first, labels = shapes.draw(60, seed=1)
    again, _ = shapes.draw(60, seed=1)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, shapes.draw(60, seed=2)[0])
    assert not np.array_equal(first, shapes.draw(60, seed=1, split="test")[0])
    monkeypatch.setattr(shapes, "_CHUNK", 7)  # a picture does not depend on its neighbours
    assert np.array_equal(first, shapes.draw(60, seed=1)[0])
    assert np.bincount(labels).tolist() == [6] * 10


def test_pictures_are_pictures(drawn) -> None:
    images, _ = drawn
    assert images.shape == (4000, 32, 32, 3)
    assert images.dtype == np.uint8
    assert images.std(axis=(1, 2, 3)).min() > 15  # none is plain
    assert len({hashlib.md5(image.tobytes()).digest() for image in images}) == 4000
    mean, std = images.reshape(-1, 3).mean(0) / 255, images.reshape(-1, 3).std(0) / 255
    assert np.abs(mean - 0.5).max() < 0.06  # near what the table of datasets says
    assert np.abs(std - 0.25).max() < 0.06


def colours(images: np.ndarray) -> np.ndarray:
    """What a picture's colours say without their places: moments and histograms of channels and of lightness."""
    pixels = images.reshape(len(images), -1, 3).astype(np.int64)
    pixels = np.concatenate([pixels, pixels.sum(2, keepdims=True) // 3], 2)
    places = np.arange(4 * len(images)).reshape(-1, 1, 4) * 8 + pixels // 32
    bins = np.bincount(places.ravel(), minlength=32 * len(images)).reshape(len(images), 32)
    return StandardScaler().fit_transform(np.concatenate([pixels.mean(1), pixels.std(1), bins], 1))


def test_colour_says_nothing_about_the_class(drawn) -> None:
    images, labels = drawn
    features = colours(images)
    train, test = slice(0, 2500), slice(2500, 4000)
    chance, deviation = 0.1, np.sqrt(0.1 * 0.9 / 1500)
    linear = (
        LogisticRegression(max_iter=100, tol=1e-3)
        .fit(features[train], labels[train])
        .score(features[test], labels[test])
    )
    near = KNeighborsClassifier(20).fit(features[train], labels[train]).score(features[test], labels[test])
    assert abs(linear - chance) < 4 * deviation
    assert abs(near - chance) < 4 * deviation
    # the same test does see a class that shows in colour: tint each class a little
    tinted = np.clip(images + (labels[:, None, None, None] * 12).astype(np.int64) % 256 // 2, 0, 255)
    features = colours(tinted)
    assert (
        LogisticRegression(max_iter=100, tol=1e-3)
        .fit(features[train], labels[train])
        .score(features[test], labels[test])
        > 0.15
    )


def test_up_can_be_told_from_down(drawn) -> None:
    images, _ = drawn
    grey = images.mean(3)
    both = (
        np.concatenate([grey, grey[:, ::-1]])
        .reshape(2 * len(images), 8, 4, 8, 4)
        .mean((2, 4))
        .reshape(2 * len(images), -1)
    )
    columns = np.concatenate([both, np.abs(both - both.mean(1, keepdims=True))], 1)
    turned = np.repeat([0, 1], len(images))
    rows = np.arange(len(turned)) % len(images)
    train = rows < 2500
    scaler = StandardScaler().fit(columns[train])
    model = LogisticRegression(max_iter=100, tol=1e-3).fit(scaler.transform(columns[train]), turned[train])
    assert model.score(scaler.transform(columns[~train]), turned[~train]) > 0.55  # light falls from above


@pytest.mark.parametrize("name", outlines.OUTLINES)
def test_outlines_have_one_area_and_lie_within_their_extent(name: str) -> None:
    grid = np.linspace(-1.6, 1.6, 801, dtype=np.float32)
    depth = outlines.distance(name, grid[None, :], grid[:, None])
    assert (depth < 0).mean() * 3.2**2 == pytest.approx(2.0, rel=0.01)
    reach = np.hypot(grid[None, :], grid[:, None])[depth < 0].max()
    assert reach == pytest.approx(outlines.extent(name), abs=0.02)
    # a distance grows by at most one per unit, and by one almost everywhere
    slope = np.hypot(*np.gradient(depth, 0.004))
    assert np.median(slope) == pytest.approx(1.0, abs=0.01)


def test_load(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(facts.SHAPES, splits={"train": 50, "test": 20})
    monkeypatch.setattr(facts, "SHAPES", small)
    train, test = relatum.data.load("shapes"), relatum.data.load("shapes", "test")
    assert (len(train), len(test), train.num_classes) == (50, 20, 10)
    assert (train.side, train.pad, train.classes[:2]) == (32, 4, ("disc", "ring"))
    monkeypatch.setattr(shapes, "draw", None)  # from the cache
    assert np.array_equal(relatum.data.load("shapes").images, train.images)
    monkeypatch.undo()
    monkeypatch.setenv("RELATUM_CACHE", str(own_cache))
    monkeypatch.setattr(facts, "SHAPES", small)
    for file in own_cache.rglob("labels.npy"):
        file.write_bytes(b"damaged")
    assert np.array_equal(relatum.data.load("shapes").images, train.images)
