"""Random subsets of an image set: a validation split, a smaller set, the visible labels of semi-supervised training.

All three are class-balanced and a pure function of the seed and of each image's position in its class.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from relatum import rng
from relatum.data.imageset import ImageSet
from relatum.errors import InputError

# Part of the random key, so that the three subsets are independent.
_VALIDATION, _LIMIT, _LABELLED = range(3)


def split_validation(images: ImageSet, fraction: float, seed: int) -> tuple[ImageSet, ImageSet]:
    """Split off a class-balanced validation set.

    Args:
        images: labelled or not; without labels the split is uniformly random.
        fraction: fraction of the images for validation, between 0 and 1.
        seed: random seed.

    Returns:
        The remaining images and the validation images (split `val`), both in the original order.
    """
    if not 0 < fraction < 1:
        raise InputError(f"a validation fraction of {fraction} is out of range: it must lie between 0 and 1.")
    number = round(fraction * len(images))
    if not 0 < number < len(images):
        raise InputError(f"{len(images)} images are too few to hold out a fraction of {fraction}.")
    validation = _balanced(_labels(images), number, seed, _VALIDATION)
    return images.subset(np.flatnonzero(~validation)), replace(images.subset(np.flatnonzero(validation)), split="val")


def limit(images: ImageSet, n: int, seed: int) -> ImageSet:
    """At most `n` images, class-balanced, in the original order."""
    if n < 1:
        raise InputError(f"a limit of {n} images is out of range: it must be at least 1.")
    if n >= len(images):
        return images
    return images.subset(np.flatnonzero(_balanced(_labels(images), n, seed, _LIMIT)))


def labelled_subset(labels: NDArray[np.int64], fraction: float, seed: int) -> NDArray[np.bool_]:
    """A class-balanced mask of the labels that are visible; a larger fraction contains all labels of a smaller one.

    Exactly round(fraction · N) labels, but at least one of each class unless the fraction is 0.
    """
    if not 0 <= fraction <= 1:
        raise InputError(f"a fraction of labels of {fraction} is out of range: it must lie between 0 and 1.")
    labels = np.asarray(labels, np.int64)
    mask = np.zeros(len(labels), np.bool_)
    if fraction > 0:
        number = max(round(fraction * len(labels)), len(np.unique(labels)))
        mask[_order_of_labels(labels, seed)[:number]] = True
    return mask


def _order_of_labels(labels: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """All images in the order in which their labels become visible: one of each class, then in proportion.

    The image of rank r in a class of n stands at (r + ½) / n, which is Webster's method: a longer beginning of the
    order never takes an image away. Largest remainders would: one label more in all can be one less for some class.
    """
    classes, index, counts = np.unique(labels, return_inverse=True, return_counts=True)
    ranks = np.empty(len(labels), np.int64)
    for number, label in enumerate(classes):
        ranks[index == number] = _ranks(int(counts[number]), seed, _LABELLED, int(label))
    ties = rng.permutation(len(classes), rng.SUBSET, _LABELLED, seed, -1)  # equal places: a class drawn at random
    return np.lexsort((ties[index], (ranks + 0.5) / counts[index], ranks > 0))


def _labels(images: ImageSet) -> NDArray[np.int64]:
    return np.zeros(len(images), np.int64) if images.labels is None else images.labels


def _ranks(n: int, seed: int, purpose: int, label: int) -> NDArray[np.int64]:
    """The rank of each of n members of a class in a random order."""
    ranks = np.empty(n, np.int64)
    ranks[rng.permutation(n, rng.SUBSET, purpose, seed, label)] = np.arange(n)
    return ranks


def _balanced(labels: NDArray[np.int64], number: int, seed: int, purpose: int) -> NDArray[np.bool_]:
    """A mask of exactly `number` images, each class in proportion (rounded by largest remainders)."""
    classes, counts = np.unique(labels, return_counts=True)
    exact = counts * (number / len(labels))
    quota = np.floor(exact).astype(np.int64)
    ties = rng.permutation(len(classes), rng.SUBSET, purpose, seed, -1)  # equal remainders: a class drawn at random
    order = np.lexsort((ties, -np.round(exact - quota, 9)))
    quota[order[: number - int(quota.sum())]] += 1
    mask = np.zeros(len(labels), np.bool_)
    for label, take in zip(classes, quota, strict=True):
        members = np.flatnonzero(labels == label)
        mask[members[_ranks(len(members), seed, purpose, int(label)) < take]] = True
    return mask
