"""Near-duplicates on images whose copies are known."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from relatum.collection.duplicates import near_duplicates
from relatum.collection.signatures import describe
from relatum.data.decode import decode


def pictures(count: int, seed: int = 0) -> np.ndarray:
    """Smooth random pictures of 48 × 48: as different from one another as photographs, and as compressible."""
    coarse = np.random.default_rng(seed).integers(0, 256, (count, 6, 6, 3), dtype=np.uint8)
    return np.stack([np.asarray(Image.fromarray(c).resize((48, 48), Image.Resampling.BICUBIC)) for c in coarse])


def copy(image: np.ndarray, side: int, quality: int) -> np.ndarray:
    buffer = BytesIO()
    Image.fromarray(image).resize((side, side), Image.Resampling.LANCZOS).save(buffer, "JPEG", quality=quality)
    return decode(buffer, 48)


def useless_features(count: int) -> np.ndarray:
    """Representations of a backbone that has learned next to nothing: all near one another."""
    return np.random.default_rng(1).normal(size=(count, 8)).astype(np.float32) * 1e-3


def test_copies_are_found_and_different_images_are_not() -> None:
    images = pictures(60)
    copies = np.stack([copy(images[i], side, quality) for i, side, quality in ((0, 24, 60), (1, 96, 30), (2, 48, 90))])
    everything = np.concatenate([images, copies])
    signatures, _ = describe(everything)
    groups = near_duplicates(everything.reshape(63, -1).astype(np.float32), signatures)
    assert {frozenset(group.members) for group in groups} == {
        frozenset({0, 60}),
        frozenset({1, 61}),
        frozenset({2, 62}),
    }
    assert not any(group.exact for group in groups)


def test_exact_copies_come_first_and_the_largest_file_leads() -> None:
    images = pictures(8)
    everything = np.concatenate([images, images[:1], copy(images[3], 24, 60)[None]])
    signatures, _ = describe(everything)
    digests = [*"abcdefgh", "a", "x"]
    sizes = [10] * 9 + [99]
    features = everything.reshape(10, -1).astype(np.float32)
    groups = near_duplicates(features, signatures, digests=digests, sizes=sizes)
    assert [group.members for group in groups] == [(0, 8), (9, 3)]
    assert [group.exact for group in groups] == [True, False]


def test_blank_images_are_copies_only_if_their_bytes_agree() -> None:
    blank = np.full((3, 32, 32, 3), 255, np.uint8)
    signatures, _ = describe(blank)
    assert near_duplicates(useless_features(3), signatures, digests=["a", "b", "c"]) == []
    assert [g.members for g in near_duplicates(useless_features(3), signatures, digests=["a", "b", "a"])] == [(0, 2)]


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_images_have_no_duplicates(count: int) -> None:
    signatures, _ = describe(pictures(1)[:count])
    assert near_duplicates(useless_features(count), signatures, digests=["a"] * count) == []


def test_a_stricter_threshold_finds_fewer() -> None:
    images = pictures(20)
    everything = np.concatenate([images, copy(images[0], 24, 40)[None]])
    signatures, _ = describe(everything)
    features = everything.reshape(21, -1).astype(np.float32)
    assert near_duplicates(features, signatures, threshold=0.5)
    assert near_duplicates(features, signatures, threshold=0.001) == []
