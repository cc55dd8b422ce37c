from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relatum import rng
from relatum.data import ImageSet, labelled_subset, limit, split_validation
from relatum.errors import InputError


def make(labels: list[int] | None, n: int | None = None) -> ImageSet:
    n = len(labels) if labels is not None else n or 0
    images = np.arange(n, dtype=np.uint8)[:, None, None, None] * np.ones((1, 2, 2, 3), np.uint8)
    numbers = None if labels is None else np.array(labels, np.int64)
    names = () if labels is None else tuple("abcdefghij")
    return ImageSet("toy", "train", images, numbers, names, (0.5,) * 3, (0.2,) * 3, 1, [f"{i}.png" for i in range(n)])


def numbers(images: ImageSet) -> list[int]:
    return [int(f.removesuffix(".png")) for f in images.files]


def test_validation_is_balanced_and_complete() -> None:
    images = make([i % 10 for i in range(200)])
    train, val = split_validation(images, 0.2, seed=1)
    assert np.bincount(val.labels).tolist() == [4] * 10
    assert np.bincount(train.labels).tolist() == [16] * 10
    assert sorted(numbers(train) + numbers(val)) == list(range(200))
    assert numbers(train) == sorted(numbers(train))
    assert (train.split, val.split) == ("train", "val")
    assert val.images[:, 0, 0, 0].tolist() == numbers(val)
    assert val.labels.tolist() == [i % 10 for i in numbers(val)]


def test_validation_depends_on_the_seed_only() -> None:
    images = make([i % 3 for i in range(90)])
    first = [numbers(split_validation(images, 0.3, seed)[1]) for seed in (1, 1, 2)]
    assert first[0] == first[1] != first[2]


def test_validation_without_labels() -> None:
    train, val = split_validation(make(None, 50), 0.1, seed=0)
    assert (len(train), len(val), val.labels) == (45, 5, None)
    assert numbers(val) != list(range(5))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=2, max_size=120), st.floats(0.01, 0.99), st.integers(0, 5))
def test_validation_keeps_every_class_in_proportion(labels: list[int], fraction: float, seed: int) -> None:
    images = make(labels)
    if not 0 < round(fraction * len(labels)) < len(labels):
        with pytest.raises(InputError, match="too few"):
            split_validation(images, fraction, seed)
        return
    train, val = split_validation(images, fraction, seed)
    assert len(val) == round(fraction * len(labels))
    assert sorted(numbers(train) + numbers(val)) == list(range(len(labels)))
    share = len(val) / len(labels)
    for label in set(labels):
        assert abs((val.labels == label).sum() - share * labels.count(label)) <= 1


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, 2.0, float("nan")])
def test_validation_fractions_out_of_range(fraction: float) -> None:
    with pytest.raises(InputError, match="between 0 and 1"):
        split_validation(make([0, 1]), fraction, 0)


def test_limit() -> None:
    images = make([0] * 50 + [1] * 50 + [2] * 50)
    some = limit(images, 30, seed=1)
    assert np.bincount(some.labels).tolist() == [10, 10, 10]
    assert len(limit(images, 31, seed=1)) == 31
    assert limit(images, 150, seed=1) is images
    assert limit(images, 1000, seed=1) is images
    assert numbers(limit(images, 30, seed=1)) == numbers(some) != numbers(limit(images, 30, seed=2))
    assert len(limit(make(None, 20), 7, seed=0)) == 7
    with pytest.raises(InputError, match="at least 1"):
        limit(images, 0, seed=1)


def test_labelled_subset() -> None:
    labels = np.repeat(np.arange(10), 500)
    mask = labelled_subset(labels, 0.01, seed=1)
    assert mask.dtype == np.bool_
    assert np.bincount(labels[mask]).tolist() == [5] * 10
    assert np.array_equal(mask, labelled_subset(labels, 0.01, seed=1))
    assert not np.array_equal(mask, labelled_subset(labels, 0.01, seed=2))
    assert labelled_subset(labels, 1.0, seed=1).all()
    assert not labelled_subset(labels, 0.0, seed=1).any()
    assert np.bincount(labels[labelled_subset(labels, 1e-6, seed=1)]).tolist() == [1] * 10
    assert (labelled_subset(labels, 0.1, seed=1) >= mask).all()  # a larger fraction keeps the smaller one's
    with pytest.raises(InputError, match="between 0 and 1"):
        labelled_subset(labels, 1.1, seed=1)


@pytest.mark.parametrize(("classes", "size"), [(10, 5000), (100, 500), (20, 2500), (10, 4000)])
@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.25, 0.5, 1.0])
def test_where_a_fraction_divides_every_class_the_first_ranks_of_each_are_seen(
    classes: int, size: int, fraction: float
) -> None:
    """The choice that published runs on CIFAR were made with: the images of rank 0 to fraction · size − 1."""
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(classes), size))
    want = np.zeros(len(labels), np.bool_)
    for label in range(classes):
        members = np.flatnonzero(labels == label)
        order = rng.permutation(size, rng.SUBSET, 2, 3, label)
        want[members[order[: round(fraction * size)]]] = True
    assert np.array_equal(labelled_subset(labels, fraction, seed=3), want)


def test_the_fraction_of_labels_is_the_one_that_was_asked_for() -> None:
    """Ten classes of 45 at a tenth: 4.5 each. Rounded one by one they would be 40."""
    labels = np.repeat(np.arange(10), 45)
    counts = np.bincount(labels[labelled_subset(labels, 0.1, seed=1)])
    assert counts.sum() == 45
    assert sorted(counts) == [4] * 5 + [5] * 5


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.lists(st.floats(0, 1), min_size=2, max_size=6))
def test_labels_are_exact_nested_and_in_proportion(sizes: list[int], fractions: list[float]) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    before = np.zeros(len(labels), np.bool_)
    for fraction in sorted(fractions):
        seen = labelled_subset(labels, fraction, seed=1)
        assert seen.sum() == (max(round(fraction * len(labels)), len(sizes)) if fraction else 0)
        assert (seen >= before).all()
        counts = np.bincount(labels[seen], minlength=len(sizes))
        assert counts.min() >= (fraction > 0)
        last = [(s - 0.5) / n for s, n in zip(counts, sizes, strict=True) if s > 1]
        following = [(s + 0.5) / n for s, n in zip(counts, sizes, strict=True) if s < n]
        assert not fraction or max(last, default=0) <= min(following, default=1)  # no class is owed one before another
        before = seen


def test_the_three_choices_differ() -> None:
    images = make(None, 200)
    held = numbers(split_validation(images, 0.25, seed=3)[1])
    kept = numbers(limit(images, 50, seed=3))
    seen = np.flatnonzero(labelled_subset(np.zeros(200, np.int64), 0.25, seed=3)).tolist()
    assert len({tuple(held), tuple(kept), tuple(seen)}) == 3
