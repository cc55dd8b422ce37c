"""Near-duplicates: exact copies, and copies that were re-encoded or resized.

Two images are near-duplicates if their thumbnails and their representations both agree. On 3,000 CIFAR-10 images and
300 copies of them (20 to 64 pixels wide, JPEG quality 30 to 90) the thumbnails of copies differ by at most 0.27 and
those of different images by at least 0.43; the few pairs in between are real duplicates of CIFAR-10.

Shape letters: N images, d features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relatum import rng
from relatum.collection.scaling import standardise
from relatum.collection.signatures import SIDE, Signatures
from relatum.features.neighbours import nearest

THRESHOLD = 0.36  # of the difference between thumbnails
_CERTAIN = 0.1  # below this difference the thumbnails suffice, whatever an untrained backbone makes of it
_FAR = 0.5  # representations farther apart than this share of the usual distance are of different images
_DETAIL = 0.85  # least correlation of the thumbnails; that of the copies above is at least 0.93
_CANDIDATES = 16  # nearest thumbnails that are compared
_CONTRAST = 0.05  # images flatter than this are compared as if they had this contrast
_BLANK = 0.004  # an image of one colour shows nothing that could be compared: only equal bytes make it a copy
_LUMINANCE = np.array([0.299, 0.587, 0.114], np.float32)
_PAIRS = 20_000  # random pairs that give the usual distance between representations


@dataclass(frozen=True)
class Group:
    """Images that show the same.

    Attributes:
        members: image numbers, the largest file first where sizes are known.
        exact: whether all files have the same bytes.
        difference: the largest difference between thumbnails that links two members; 0 for identical thumbnails.
    """

    members: tuple[int, ...]
    exact: bool
    difference: float


def near_duplicates(
    features: NDArray[np.float32],
    signatures: Signatures,
    *,
    digests: Sequence[str] = (),
    sizes: Sequence[int] = (),
    threshold: float = THRESHOLD,
) -> list[Group]:
    """Groups of near-duplicates, the most similar first.

    Args:
        features: (N, d) representations.
        signatures: (N, SIDE, SIDE, 3) thumbnails (`signatures.describe`).
        digests: a hash of each file, to recognise exact copies.
        sizes: bytes of each file, to list the largest copy first.
        threshold: the largest difference between the thumbnails of copies, relative to their contrast.
    """
    links: dict[tuple[int, int], float] = {}
    if len(features) > 1:
        links = _similar_pairs(features, signatures, threshold)
    first_with: dict[str, int] = {}
    for i, digest in enumerate(digests):
        j = first_with.setdefault(digest, i)
        if j != i:
            links[j, i] = 0.0
    groups = []
    for members in _connected(len(features), links):
        inside = set(members)
        difference = max(value for (i, _), value in links.items() if i in inside)
        exact = bool(digests) and len({digests[i] for i in members}) == 1
        ordered = sorted(members, key=lambda i: (-sizes[i], i)) if len(sizes) else members
        groups.append(Group(tuple(ordered), exact, float(difference)))
    return sorted(groups, key=lambda group: (not group.exact, group.difference, group.members))


def _similar_pairs(
    features: NDArray[np.float32], signatures: Signatures, threshold: float
) -> dict[tuple[int, int], float]:
    """Pairs (i < j) of near-duplicates with the difference between their thumbnails."""
    vectors, contrast = _vectors(signatures)
    everyone = np.arange(len(vectors))
    distances, near = nearest(vectors, vectors, min(_CANDIDATES, len(vectors) - 1), exclude=everyone)
    difference = distances / np.maximum(np.minimum(contrast[:, None], contrast[near]), _CONTRAST)
    blank = contrast < _BLANK
    rows, columns = np.nonzero((difference <= threshold) & ~(blank[:, None] | blank[near]))
    i, j, value = rows, near[rows, columns], difference[rows, columns]
    z = standardise(features)
    apart = np.linalg.norm(z[i] - z[j], axis=1)
    same = (value <= _CERTAIN) | (apart <= _FAR * _usual_distance(z))
    same &= _correlation(signatures, i, j) >= _DETAIL
    return {(int(min(a, b)), int(max(a, b))): float(v) for a, b, v in zip(i[same], j[same], value[same], strict=True)}


def _vectors(signatures: Signatures) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Vectors whose distance is a root mean square over brightness and colour, and the contrast of each image.

    Colour is compared on a coarser grid: JPEG stores it at half the resolution.
    """
    pixels = signatures.astype(np.float32) / 255
    brightness = pixels @ _LUMINANCE
    colour = pixels - brightness[..., None]
    cells = colour.reshape(len(pixels), 4, SIDE // 4, 4, SIDE // 4, 3).mean((2, 4)).reshape(len(pixels), -1)
    brightness = brightness.reshape(len(pixels), SIDE // 2, 2, SIDE // 2, 2).mean((2, 4)).reshape(len(pixels), -1)
    vectors = np.concatenate([brightness / np.sqrt(brightness.shape[1]), cells / np.sqrt(cells.shape[1])], 1)
    return vectors, brightness.std(1)


def _correlation(signatures: Signatures, i: NDArray[np.int64], j: NDArray[np.int64]) -> NDArray[np.float32]:
    """The correlation of pairs of thumbnails at full resolution; tells apart pages of text of the same layout."""
    brightness = (signatures.astype(np.float32) @ _LUMINANCE).reshape(len(signatures), -1)
    centred = brightness - brightness.mean(1, keepdims=True)
    unit = centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-6)
    return np.einsum("pd,pd->p", unit[i], unit[j])


def _usual_distance(z: NDArray[np.float32]) -> float:
    draws = rng.uniform(rng.key(rng.QUERY, 0), np.arange(2 * _PAIRS)).reshape(2, -1)
    a, b = (draws * len(z)).astype(np.int64)
    different = a != b
    return float(np.median(np.linalg.norm(z[a[different]] - z[b[different]], axis=1))) if different.any() else 0.0


def _connected(count: int, links: dict[tuple[int, int], float]) -> list[list[int]]:
    """The connected components with at least two members, each sorted."""
    parent = list(range(count))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for i, j in links:
        a, b = root(i), root(j)
        parent[max(a, b)] = min(a, b)
    members: dict[int, list[int]] = {}
    for i in range(count):
        members.setdefault(root(i), []).append(i)
    return [group for group in members.values() if len(group) > 1]
