"""Near-duplicates: exact copies, and copies that were re-encoded, resized, slightly cropped, or changed in brightness.

Thumbnails that resemble one another are candidates. They are aligned and compared part by part (`registration`), first
as thumbnails and then, if they may be copies, in detail. Images that agree everywhere are a group if they also stand
apart from all others (`isolated`). No representation is needed, so the result does not depend on training.
docs/photos.md reports how many copies and look-alikes are found.

Shape letters: N images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relatum.collection.index import Index
from relatum.collection.isolated import isolated_groups
from relatum.collection.registration import (
    CONTRAST,
    DETAIL,
    LUMINANCE,
    colour_difference,
    differences,
    edge_correlation,
)
from relatum.collection.signatures import SIDE, Signatures
from relatum.features.neighbours import nearest

THRESHOLD = 0.18  # of the difference in the window where two images differ most, relative to their contrast
_MAYBE = 2  # times the threshold: thumbnails that differ more are not compared in detail
_CANDIDATES = 16  # nearest thumbnails that are compared
_FAR = 0.55  # coarse thumbnails farther apart than this are not compared; those of 98 % of the copies are nearer
_GRID = 12  # side of the coarse thumbnails
_COLOURS = 4  # side of their colour cells: JPEG stores colour at a lower resolution
_CHUNK = 1024  # thumbnails at a time: about 60 MB of float32
_PAIRS = 256  # pairs at a time that are compared in detail: at most 60 MB of pixels
_SAME_EDGES = 0.97  # least correlation of the edges of copies that were saved without loss
_SAME_COLOURS = 0.03  # largest change of a colour in them: a brighter copy has the same tints
_BLANK = 0.004  # images of one colour have no content to compare: they are copies only if their bytes are equal

Rows = NDArray[np.int64]
Detail = Callable[[Sequence[int]], dict[int, NDArray[np.uint8]]]
LinkTest = Callable[[int], bool]


@dataclass(frozen=True)
class Group:
    """Images that show the same.

    Attributes:
        members: image numbers, the largest image first where sizes are known; symbolic links last.
        exact: whether all files have the same bytes.
        difference: the largest difference that links two members (`registration.differences`); 0 for identical
            thumbnails.
    """

    members: tuple[int, ...]
    exact: bool
    difference: float


def find_duplicates(
    index: Index, *, detail: Detail | None = None, is_link: LinkTest | None = None, threshold: float = THRESHOLD
) -> list[Group]:
    """`near_duplicates` of the images of an index."""
    return near_duplicates(
        index.signatures,
        resolutions=index.sizes.min(1).tolist(),
        digests=index.digests.tolist(),
        sizes=index.pixels_and_bytes,
        lossless=index.lossless,
        detail=detail,
        is_link=is_link,
        threshold=threshold,
    )


def near_duplicates(
    signatures: Signatures,
    *,
    resolutions: Sequence[int] = (),
    digests: Sequence[str] = (),
    sizes: Sequence[tuple[int, int]] = (),
    lossless: Sequence[tuple[int, int] | None] = (),
    detail: Detail | None = None,
    is_link: LinkTest | None = None,
    threshold: float = THRESHOLD,
) -> list[Group]:
    """Groups of near-duplicates, the most similar first.

    Args:
        signatures: (N, SIDE, SIDE, 3) thumbnails (`signatures.describe`).
        resolutions: the smaller side of each image in pixels, where it is known: a small copy shows fewer details.
        digests: a hash of each file, to recognise exact copies; empty where the file could not be read.
        sizes: number of pixels and of bytes of each file, to list the largest copy first.
        lossless: width and height of each image whose format keeps every pixel, None for the others. Two such images
            of one size are copies only if their edges and colours agree almost exactly; nothing has blurred or moved
            them.
        detail: reads images again: from their numbers to (DETAIL, DETAIL, 3) arrays; those that cannot be read are
            missing. Without it, thumbnails decide.
        is_link: whether an image is a symbolic link. It is listed after the files: whoever keeps the first image of a
            group and deletes the others must not be left with a link to a file that is gone.
        threshold: the largest difference between copies.
    """
    count = len(signatures)
    first_with: dict[str, int] = {}
    firsts = [first_with.setdefault(d, i) if d else i for i, d in enumerate(digests)] or range(count)
    rows = np.unique(np.fromiter(firsts, np.int64, count))  # of files with the same bytes, one is compared
    links: dict[tuple[int, int], float] = {}
    no_copies: set[tuple[int, int]] = set()
    if len(rows) > 1:
        known = np.asarray(resolutions, np.int64) if len(resolutions) else np.full(count, SIDE)
        links, no_copies = _compared_pairs(signatures, rows, known, threshold, _strict(lossless), detail)
    links |= {(first, i): 0.0 for i, first in enumerate(firsts) if first != i}
    groups = []
    for members, difference in isolated_groups(count, links, threshold, no_copies):
        contents = {digests[i] for i in members} if digests else set()
        exact = len(contents) == 1 and "" not in contents
        ordered = sorted(members, key=lambda i: (-sizes[i][0], -sizes[i][1], i)) if len(sizes) else members
        ordered = sorted(ordered, key=is_link) if is_link is not None else ordered
        groups.append(Group(tuple(ordered), exact, difference))
    return sorted(groups, key=lambda group: (not group.exact, group.difference, group.members))


def _strict(lossless: Sequence[tuple[int, int] | None]) -> Callable[[int, int], bool]:
    """Whether two images are lossless and of one size."""
    return lambda i, j: bool(lossless) and lossless[i] is not None and lossless[i] == lossless[j]


def _compared_pairs(
    signatures: Signatures,
    compared: Rows,
    resolutions: Rows,
    threshold: float,
    strict: Callable[[int, int], bool],
    detail: Detail | None,
) -> tuple[dict[tuple[int, int], float], set[tuple[int, int]]]:
    """Pairs (i < j) of similar thumbnails with the difference between them, and those that are surely no copies.

    Only the images with the numbers `compared` (sorted) are compared.
    """
    vectors, contrast = (array[compared] for array in _vectors(signatures))
    everyone = np.arange(len(vectors))
    distances, near = nearest(vectors, vectors, min(_CANDIDATES, len(vectors) - 1), exclude=everyone)
    blank = contrast < _BLANK
    rows, columns = np.nonzero((distances <= _FAR) & ~(blank[:, None] | blank[near]))
    pairs = np.sort(np.stack([rows, near[rows, columns]], 1), 1)
    i, j = compared[np.unique(pairs, axis=0).T.reshape(2, -1)]
    resolution = np.minimum(resolutions[i], resolutions[j])
    values = np.zeros(len(i), np.float32)
    for start in range(0, len(i), _CHUNK):
        part = slice(start, start + _CHUNK)
        one, other = signatures[i[part]], signatures[j[part]]
        values[part] = _either_way(one, other, resolution[part], _MAYBE * threshold)
    different = np.zeros(len(i), bool)
    small = np.flatnonzero((values <= threshold) & (resolution <= SIDE))  # the thumbnails have all of their detail
    small = small[[strict(int(i[row]), int(j[row])) for row in small]] if len(small) else small
    different[small] = colour_difference(signatures[i[small]], signatures[j[small]]) > _SAME_COLOURS
    if detail is not None:
        _compare_in_detail(values, different, i, j, resolution, threshold, strict, detail)
    links = {(int(a), int(b)): float(v) for a, b, v in zip(i, j, values, strict=True)}
    return links, {pair for pair, apart in zip(links, different, strict=True) if apart}


def _either_way(first: Signatures, second: Signatures, resolution: Rows, enough: float) -> NDArray[np.float32]:
    """Differences between pairs: the larger one, whichever of the two is aligned to the other."""
    values = differences(first, second, resolution)
    left = np.flatnonzero(values <= enough)  # the others are no copies either way
    values[left] = np.maximum(values[left], differences(second[left], first[left], resolution[left]))
    return values


def _compare_in_detail(
    values: NDArray[np.float32],
    different: NDArray[np.bool_],
    i: Rows,
    j: Rows,
    resolution: Rows,
    threshold: float,
    strict: Callable[[int, int], bool],
    detail: Detail,
) -> None:
    """Replace the differences between thumbnails of possible copies that have more pixels than a thumbnail.

    Also notes which pairs are surely different: lossless images of one size whose edges or colours do not agree.
    """
    rows = np.flatnonzero((values <= _MAYBE * threshold) & (resolution > SIDE))
    for start in range(0, len(rows), _PAIRS):
        part = rows[start : start + _PAIRS]
        pixels = detail(np.unique([i[part], j[part]]).tolist())
        part = np.array([row for row in part if int(i[row]) in pixels and int(j[row]) in pixels], np.int64)
        one, other = (
            np.array([pixels[int(image)] for image in images[part]], np.uint8).reshape(-1, DETAIL, DETAIL, 3)
            for images in (i, j)
        )
        values[part] = _either_way(one, other, resolution[part], threshold)
        exact = np.flatnonzero([strict(int(i[row]), int(j[row])) for row in part])
        one, other = one[exact], other[exact]
        different[part[exact]] = (edge_correlation(one, other) < _SAME_EDGES) | (
            colour_difference(one, other) > _SAME_COLOURS
        )


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
