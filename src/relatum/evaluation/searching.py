"""`search`: the images of a gallery that are nearest to query images, and a contact sheet.

The representations of a folder or dataset are kept with the run (`collection.indexing`), so that a second search reads
them and only decodes the queries. Files with the same bytes count as one image.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from relatum import data as sources
from relatum.collection.index import Index
from relatum.collection.indexing import build_index, load_pixels, preprocessing
from relatum.data import folder, sets
from relatum.data.dataset import RGB
from relatum.data.decode import decode, reason
from relatum.data.folder import Listing
from relatum.data.imageset import ImageSet, Skipped
from relatum.data.stream.store import is_url
from relatum.drawing import Tile, contact_sheet
from relatum.errors import InputError, require_positive
from relatum.evaluation.embedding import Source, load_for
from relatum.features import Features, extract
from relatum.features.neighbours import nearest
from relatum.runs.weights import load_backbone
from relatum.system.devices import find_device
from relatum.system.files import expand_user, write_atomically
from relatum.system.progress import Display
from relatum.system.text import distance_text

_TILE = 128  # pixels of an image that is decoded for a contact sheet


@dataclass(frozen=True)
class Hit:
    """One retrieved image.

    Attributes:
        query: the query file.
        rank: from 1.
        file: the file in the gallery, or its number where images are not files.
        distance: Euclidean distance between the representations.
        is_query: whether the file is the query itself.
        copies: further files of the gallery with the same bytes.
    """

    query: str
    rank: int
    file: str
    distance: float
    is_query: bool = False
    copies: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Gallery:
    """The gallery: names, representations and content hashes of its images, and how to load their pixels."""

    names: list[str]
    features: Features
    digests: list[str]
    root: Path | None = None
    images: NDArray[np.uint8] | None = None

    def row_of(self, query: str) -> int | None:
        """The row of the query itself, if its file is in the gallery."""
        if self.root is None and self.names[0].isdigit():  # no files
            return None
        for place in (Path.absolute, Path.resolve):  # a link in the gallery is the query itself, wherever it leads
            path = place(Path(query))
            if self.root is None:
                names = [str(place(Path(name))) for name in self.names]
            else:
                root, names = place(self.root), self.names
                path = path.relative_to(root) if path.is_relative_to(root) else path
            if str(path) in names:
                return names.index(str(path))
        return None

    def pixels(self, rows: Sequence[int]) -> dict[int, NDArray[np.uint8]]:
        """Images for the contact sheet; grey where a file is gone."""
        if self.images is not None:
            return {row: self.images[row] for row in rows}
        assert self.root is not None
        pixels = load_pixels(self.root, [self.names[row] for row in rows], _TILE)
        grey = np.full((_TILE, _TILE, 3), 128, np.uint8)
        return {row: pixels.get(self.names[row], grey) for row in rows}


def search(
    run: Source | nn.Module,
    gallery: Any,
    queries: Any,
    *,
    top: int = 10,
    out: Source | None = None,
    backbone: str | nn.Module | None = None,
    split: str = "train",
    device: str = "auto",
    root: Source | None = None,
    progress: bool = True,
) -> list[Hit]:
    """The `top` images of a gallery nearest to each query, by Euclidean distance; equal ones in the gallery's order.

    The arguments are those of `relatum.search`. The query itself is not drawn on the contact sheet.
    """
    queries = sources.list_images(queries)
    if not queries:
        raise InputError("there is nothing to search for: name at least one image file.")
    require_positive("top", top)
    if out is not None and Path(out).suffix.lower() != ".png":
        raise InputError(f"{out} must end in .png: the contact sheet is a PNG file.")
    if isinstance(run, nn.Module):
        module = run
    else:
        module = load_backbone(Path(run), backbone=backbone).to(find_device(device))
    in_memory = None
    if not sources.is_path(gallery) or sources.is_image_file(gallery) or is_url(gallery):
        in_memory = load_for(module, gallery, split=split)
    query_images = _read_queries(queries, *_preprocessing(module, gallery, in_memory))
    for query in query_images.skipped:
        Display(quiet=not progress).warn(f"{query.path} cannot be read ({query.reason}): not searched for.")
    if in_memory is None:
        searched = _open(run, module, gallery, split, root, progress)
    else:
        searched = _of_images(module, in_memory, progress)
    hits, rows = [], []
    nearest_images = _neighbours(searched, extract(module, query_images), query_images, top)
    for name, neighbours in zip(query_images.files or [], nearest_images, strict=True):
        hits += [
            Hit(name, rank, searched.names[row], distance, is_query, tuple(searched.names[i] for i in copies))
            for rank, (row, distance, is_query, copies) in enumerate(neighbours[:top], 1)
        ]
        others = [(row, distance, len(copies)) for row, distance, is_query, copies in neighbours if not is_query]
        rows.append(others[:top])
    if out is not None:
        _draw(Path(out), query_images, searched, rows)
    return hits


_Neighbour = tuple[int, float, bool, list[int]]  # row, distance, whether it is the query itself, rows of its copies


def _neighbours(gallery: _Gallery, z: Features, queries: ImageSet, top: int) -> Iterator[list[_Neighbour]]:
    """The nearest images of each query: at least `top` besides the query itself, if the gallery has them."""
    groups: dict[str, list[int]] = {}
    for row, digest in enumerate(gallery.digests):
        groups.setdefault(digest or f"row {row}", []).append(row)
    members = list(groups.values())
    first = np.array([rows[0] for rows in members])
    distances, indices = nearest(z, gallery.features[first], min(top + 1, len(first)))
    for i, query in enumerate(queries.files or []):
        query_row = gallery.row_of(query)
        neighbours: list[_Neighbour] = []
        for distance, index in zip(distances[i], indices[i], strict=True):
            rows = members[index]
            if query_row is not None and query_row in rows:
                neighbours.append((query_row, float(distance), True, []))
                rows = [row for row in rows if row != query_row]
            if rows:
                neighbours.append((rows[0], float(distance), False, rows[1:]))
        yield neighbours


def _open(
    run: Source | nn.Module, module: nn.Module, gallery: Any, split: str, root: Source | None, progress: bool
) -> _Gallery:
    """A folder or dataset with its representations, which are kept with the run."""
    index = build_index(run, gallery, module=module, split=split, root=root, progress=progress)
    pixels = None
    place: Path | None = expand_user(gallery)
    if sets.is_dataset(gallery):
        place, pixels = None, sources.load(str(gallery), split, root=None if root is None else Path(root)).images
    elif place is not None:
        index = _part(index, place, split)
    return _Gallery([str(f) for f in index.files], index.features, index.digests.tolist(), place, pixels)


def _of_images(module: nn.Module, images: ImageSet, progress: bool) -> _Gallery:
    names = [str(i) for i in range(len(images))] if images.files is None else list(images.files)
    digests = [""] * len(images)  # of streamed images: hashing would decode them all once more
    if isinstance(images.images, np.ndarray):
        digests = [hashlib.sha256(np.ascontiguousarray(image).data).hexdigest() for image in images.images]
    return _Gallery(names, extract(module, images, progress=progress), digests, images=images.images)


def _preprocessing(module: nn.Module, gallery: Any, in_memory: ImageSet | None) -> tuple[int, RGB, RGB]:
    """Side, mean and standard deviation of the gallery's images, which the queries share."""
    if in_memory is not None:
        return in_memory.side, in_memory.mean, in_memory.std
    if sets.is_dataset(gallery):
        dataset = sets.get(str(gallery))
        return dataset.side, dataset.mean, dataset.std
    return preprocessing(module)


def _part(index: Index, place: Path, split: str) -> Index:
    """The rows of a split, if the folder has sub-folders `train` and `test`; otherwise all rows."""
    files = [str(file) for file in index.files]
    listing = Listing(place, files, [(0, 0, 0)] * len(files), [])
    parts = folder.splits(listing)
    if split not in parts:
        raise InputError(f"{place} has no '{split}' split, only {' and '.join(parts)}.")
    if parts[split] is listing:
        return index
    head = parts[split].root.name + os.sep
    return index.rows([row for row, file in enumerate(files) if file.startswith(head)])


def _draw(out: Path, queries: ImageSet, gallery: _Gallery, rows: list[list[tuple[int, float, int]]]) -> None:
    pixels = gallery.pixels(sorted({row for neighbours in rows for row, _, _ in neighbours}))
    sheet = []
    for query, image, neighbours in zip(queries.files or [], queries.images, rows, strict=True):
        tiles = [Tile(_larger(Path(query), image), Path(query).name, "query", marked=True)]
        for row, distance, copies in neighbours:
            more = "" if not copies else f"  +{copies} cop{'y' if copies == 1 else 'ies'}"
            tiles.append(Tile(pixels[row], gallery.names[row], f"{distance_text(distance)}{more}"))
        sheet.append(tiles)
    picture = contact_sheet(sheet)
    write_atomically(out, lambda path: picture.save(path, format="PNG"))


def _larger(query: Path, small: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The query at the size of a tile; it was decoded at the side of the backbone, which may be small."""
    try:
        return decode(query, _TILE)
    except Exception:  # Pillow may raise any exception; the file was changed in the meantime
        return small


def _read_queries(queries: Sequence[Any], side: int, mean: RGB, std: RGB) -> ImageSet:
    """Queries, decoded; files that cannot be read are listed. Images in memory are named by their number."""
    pixels, files, skipped = [], [], []
    for number, item in enumerate(queries):
        if not sources.is_path(item):
            pixels.append(sources.read_images([item], side=side).images[0])
            files.append(f"image {number}")
            continue
        query = os.fspath(item)
        try:
            if not Path(query).exists():
                raise OSError("there is no such file")
            pixels.append(decode(Path(query), side))
            files.append(query)
        except Exception as error:  # Pillow may raise any exception for a damaged file
            skipped.append(Skipped(query, reason(error)))
    if not pixels:
        raise InputError(f"{skipped[0].path} cannot be read: {skipped[0].reason}.")
    return ImageSet("queries", "test", np.stack(pixels), None, (), mean, std, side // 8, files, tuple(skipped))
