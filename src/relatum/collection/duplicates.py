"""Near-duplicates: exact copies, and copies that were re-encoded, resized, slightly cropped, or changed in brightness.

Thumbnails that resemble one another are candidates; a pair counts if it agrees everywhere once the two are aligned
(`registration`). No representation is needed, so the result does not depend on training. docs/photos.md reports how
many copies and look-alikes are found.

Shape letters: N images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relatum.collection.registration import CONTRAST, LUMINANCE, differences
from relatum.collection.signatures import SIDE, Signatures
from relatum.features.neighbours import nearest

THRESHOLD = 0.18  # of the difference in the window where two images differ most, relative to their contrast
_CANDIDATES = 16  # nearest thumbnails that are compared
_FAR = 0.55  # coarse thumbnails farther apart than this are not compared; those of 98 % of the copies are nearer
_GRID = 12  # side of the coarse thumbnails
_COLOURS = 4  # side of their colour cells: JPEG stores colour at a lower resolution
_CHUNK = 1024  # thumbnails at a time: about 60 MB of float32
_BLANK = 0.004  # images of one colour have no content to compare: they are copies only if their bytes are equal


@dataclass(frozen=True)
class Group:
    """Images that show the same.

    Attributes:
        members: image numbers, the largest file first where sizes are known.
        exact: whether all files have the same bytes.
        difference: the largest difference that links two members (`registration.differences`); 0 for identical
            thumbnails.
    """

    members: tuple[int, ...]
    exact: bool
    difference: float


def near_duplicates(
    signatures: Signatures,
    *,
    resolutions: Sequence[int] = (),
    digests: Sequence[str] = (),
    sizes: Sequence[int] = (),
    threshold: float = THRESHOLD,
) -> list[Group]:
    """Groups of near-duplicates, the most similar first.

    Args:
        signatures: (N, SIDE, SIDE, 3) thumbnails (`signatures.describe`).
        resolutions: the smaller side of each image in pixels, where it is known: a small copy shows fewer details.
        digests: a hash of each file, to recognise exact copies.
        sizes: bytes of each file, to list the largest copy first.
        threshold: the largest difference between copies.
    """
    count = len(signatures)
    links: dict[tuple[int, int], float] = {}
    if count > 1:
        known = np.asarray(resolutions, np.int64) if len(resolutions) else np.full(count, SIDE)
        links = _similar_pairs(signatures, known, threshold)
    first_with: dict[str, int] = {}
    for i, digest in enumerate(digests):
        j = first_with.setdefault(digest, i)
        if j != i:
            links[j, i] = 0.0
    groups = []
    components = _connected(count, links)
    component_of = {i: number for number, members in enumerate(components) for i in members}
    largest = [0.0] * len(components)
    for (i, _), value in links.items():
        largest[component_of[i]] = max(largest[component_of[i]], value)
    for members, difference in zip(components, largest, strict=True):
        exact = bool(digests) and len({digests[i] for i in members}) == 1
        ordered = sorted(members, key=lambda i: (-sizes[i], i)) if len(sizes) else members
        groups.append(Group(tuple(ordered), exact, difference))
    return sorted(groups, key=lambda group: (not group.exact, group.difference, group.members))


def _similar_pairs(
    signatures: Signatures, resolutions: NDArray[np.int64], threshold: float
) -> dict[tuple[int, int], float]:
    """Pairs (i < j) of near-duplicates with the difference between them."""
    vectors, contrast = _vectors(signatures)
    everyone = np.arange(len(vectors))
    distances, near = nearest(vectors, vectors, min(_CANDIDATES, len(vectors) - 1), exclude=everyone)
    blank = contrast < _BLANK
    rows, columns = np.nonzero((distances <= _FAR) & ~(blank[:, None] | blank[near]))
    pairs = np.sort(np.stack([rows, near[rows, columns]], 1), 1)
    i, j = np.unique(pairs, axis=0).T.reshape(2, -1)
    values = np.zeros(len(i), np.float32)
    for one, other in ((i, j), (j, i)):  # whichever of the two is aligned to the other, they must agree
        left = np.flatnonzero(values <= threshold)
        resolution = np.minimum(resolutions[i[left]], resolutions[j[left]])
        difference = differences(signatures, one[left], other[left], resolution)
        values[left] = np.maximum(values[left], difference)
    same = values <= threshold
    return {(int(a), int(b)): float(v) for a, b, v in zip(i[same], j[same], values[same], strict=True)}


def _vectors(signatures: Signatures) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Vectors that compare brightness (at equal mean and contrast) and colour, and the contrast of each image."""
    parts = [_coarse(signatures[start : start + _CHUNK]) for start in range(0, len(signatures), _CHUNK)]
    vectors, contrasts = zip(*parts, strict=True)
    return np.concatenate(vectors), np.concatenate(contrasts)


def _coarse(signatures: Signatures) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    pixels = np.divide(signatures, 255, dtype=np.float32)
    brightness: NDArray[np.float32] = pixels @ LUMINANCE
    coarse = _cells(brightness, _GRID).reshape(len(pixels), -1)
    contrast = coarse.std(1)
    scale = np.maximum(contrast, CONTRAST)[:, None]
    centred = (coarse - coarse.mean(1, keepdims=True)) / scale
    colours = _cells(pixels - brightness[..., None], _COLOURS).reshape(len(pixels), -1) / scale
    parts = [part / np.float32(np.sqrt(part.shape[1])) for part in (centred, colours)]
    return np.concatenate(parts, 1), contrast


def _cells(images: NDArray[np.floating], cells: int) -> NDArray[np.float32]:
    """Averages over the cells of a grid."""
    count, size = images.shape[:2]
    blocks = images.reshape(count, cells, size // cells, cells, size // cells, *images.shape[3:])
    return np.asarray(blocks.mean((2, 4)), np.float32)


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
