"""`build_index`: computes the index of a collection once and stores it in the run folder.

A second command on the same images reads it and computes nothing. If a folder has changed, only the new files are
read: files are identified by path, size, modification and change time, and moved or renamed files by their content.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from relatum import data as sources
from relatum.backbones.base import image_settings
from relatum.collection.file_facts import digest, width_height_time
from relatum.collection.index import Index, Source, index_file, merged, read_index, write_index
from relatum.collection.registration import DETAIL
from relatum.collection.signatures import describe
from relatum.data import folder, sets
from relatum.data.dataset import RGB
from relatum.data.decode import decode, formats, reason
from relatum.data.decoded import PASSING, Stamp, decode_files
from relatum.data.folder import Listing
from relatum.data.imageset import ImageSet, Skipped
from relatum.data.layout import LARGEST_SIDE
from relatum.errors import InputError
from relatum.features import extract
from relatum.features.extract import function_hash, pixel_hash
from relatum.runs.folder import RunFolder
from relatum.runs.weights import load_backbone
from relatum.system.cpus import available_cpus
from relatum.system.devices import find_device

# Files are described at this side, whatever that of the backbone: at 64 pixels a page of text is grey. It is also the
# largest side that training chooses by itself, so that large photographs are decoded once for both.
_DESCRIBED = LARGEST_SIDE


def build_index(
    run: Source | nn.Module,
    data: Source,
    *,
    module: nn.Module | None = None,
    architecture: str | nn.Module | None = None,
    split: str = "train",
    device: str = "auto",
    root: Source | None = None,
    progress: bool = True,
) -> Index:
    """The index of a folder or dataset: read from the run folder if it is there, and updated.

    Args:
        run: run folder, weights file or module.
        data: folder of images or dataset name.
        module: the backbone of the run, if it is loaded already.
        architecture: of a run with a custom backbone: `module:function` or a module.
        split: split of a dataset; of a folder, all images are read.
        device: device for a backbone that is loaded here.
        root: data root folder.
        progress: show progress bars.
    """
    place = None
    if isinstance(run, nn.Module):
        module = run
    else:
        module = module or load_backbone(Path(run), backbone=architecture).to(find_device(device))
        place = index_file(Path(run), data, split) if RunFolder(run).keeps_results() else None
    known = None if place is None else read_index(place)
    if sets.is_dataset(data):
        images = sources.load(str(data), split, root=None if root is None else Path(root))
        index = _of_dataset(module, images, known, progress)
    else:
        index = _of_folder(module, folder.scan(sources.find_folder(os.fspath(data))), known, progress)
    if not len(index):
        first = f" (the first: {index.skipped[0].path!r}, {index.skipped[0].reason})" if index.skipped else ""
        raise InputError(f"{os.fspath(data)} contains no readable image{first}.")
    if place is not None and index is not known:
        with contextlib.suppress(OSError):  # a run on a read-only disk can still be used
            write_index(place, index)
    return index


def _of_dataset(module: nn.Module, images: ImageSet, known: Index | None, progress: bool) -> Index:
    key = hashlib.sha256(
        f"{function_hash(module, images.side)} {pixel_hash(images)} {images.mean} {images.std}".encode()
    ).hexdigest()
    if known is not None and known.key == key:
        return known
    n = len(images)
    digests = [hashlib.sha256(np.ascontiguousarray(image).data).hexdigest()[:32] for image in images.images]
    signatures, statistics = describe(images.images)
    return Index(
        features=extract(module, images, progress=progress),
        signatures=signatures,
        statistics=statistics,
        sizes=np.full((n, 2), images.side, np.int64),
        stamps=np.zeros((n, 3), np.int64),
        times=np.zeros(n, np.int64),
        digests=np.array(digests, np.str_),
        files=np.array([str(i) for i in range(n)] if images.files is None else list(images.files), np.str_),
        key=key,
    )


def preprocessing(module: nn.Module) -> tuple[int, RGB, RGB]:
    """Side, mean and standard deviation of the images that a backbone was trained on, or defaults."""
    found = image_settings(module)
    return int(found.get("side", 32)), found.get("mean", (0.5,) * 3), found.get("std", (0.25,) * 3)


def _of_folder(module: nn.Module, listing: Listing, known: Index | None, progress: bool) -> Index:
    side, mean, std = preprocessing(module)
    key = hashlib.sha256(f"{function_hash(module, side)} {side} {mean} {std}".encode()).hexdigest()
    if known is not None and known.key != key:
        known = None
    stamps = dict(zip(listing.files, listing.stamps, strict=True))
    readable = " ".join(formats())
    same: dict[str, int] = {}
    failed: dict[str, Stamp] = {}
    if known is not None:
        same = {str(f): i for i, f in enumerate(known.files) if stamps.get(str(f)) == tuple(known.stamps[i].tolist())}
        if known.formats == readable:
            failed = {file: stamp for file, stamp in known.failed.items() if stamps.get(file) == stamp}
        unreadable = {item.path for item in listing.skipped} | failed.keys()
        if (
            len(same) == len(known)
            and len(same) + len(failed) == len(stamps)
            and unreadable == {item.path for item in known.skipped}
        ):
            return known
    rows: list[Index] = [] if known is None else [known.rows(list(same.values()))]
    new = [file for file in listing.files if file not in same and file not in failed]
    digests = _in_threads(lambda file: digest(listing.read(file)), new)
    if known is not None:  # moved and renamed files
        by_digest = {str(d): i for i, d in enumerate(known.digests) if d}
        moved = [file for file in new if digests[file] in by_digest]
        rows.append(_moved(known.rows([by_digest[digests[file]] for file in moved]), moved, stamps))
        new = [file for file in new if digests[file] not in by_digest]
    images, files, skipped = _decoded(listing, new, side)
    if len(files):
        part_set = ImageSet(listing.root.name, "train", images, None, (), mean, std, side // 8)
        larger, same_files, _ = _decoded(listing, new, _DESCRIBED)
        described = larger if same_files == files else images  # a file was changed in the meantime
        rows.append(_rows(module, part_set, described, listing, files, stamps, digests, progress))
        if known is not None and _widths(known) != _widths(rows[-1]):  # the index is not of this backbone
            return _of_folder(module, listing, None, progress)
    before = [] if known is None else [item for item in known.skipped if item.path in failed]
    failed |= {item.path: stamps[item.path] for item in skipped if item.reason not in PASSING}
    skipped = sorted((*listing.skipped, *before, *skipped), key=lambda item: item.path)
    return replace(merged(rows, key), skipped=tuple(skipped), failed=failed, formats=readable)


def _moved(rows: Index, files: list[str], stamps: dict[str, Stamp]) -> Index:
    """Known rows for files with the same content; a time that was the old file's is now the new one's."""
    new = np.array([stamps[file] for file in files], np.int64).reshape(-1, 3)
    of_file = rows.times == rows.stamps[:, 1] // 10**9
    times = np.where(of_file, new[:, 1] // 10**9, rows.times)
    return replace(rows, files=np.array(files, np.str_), stamps=new, times=times)


def _widths(index: Index) -> tuple[int, int]:
    return index.features.shape[1], index.statistics.shape[1]


def _rows(
    module: nn.Module,
    images: ImageSet,
    described: NDArray[np.uint8],
    listing: Listing,
    files: list[str],
    stamps: dict[str, Stamp],
    digests: dict[str, str],
    progress: bool,
) -> Index:
    """The rows of files that were just decoded."""
    signatures, statistics = describe(described)
    facts = _in_threads(lambda file: width_height_time(listing.read(file)), files)
    times = [facts[f][2] if facts[f][2] is not None else stamps[f][1] // 10**9 for f in files]
    return Index(
        features=extract(module, images, progress=progress),
        signatures=signatures,
        statistics=statistics,
        sizes=np.array([facts[f][:2] for f in files], np.int64),
        stamps=np.array([stamps[f] for f in files], np.int64),
        times=np.array(times, np.int64),
        digests=np.array([digests[f] for f in files], np.str_),
        files=np.array(files, np.str_),
    )


def _decoded(listing: Listing, files: list[str], side: int) -> tuple[NDArray[np.uint8], list[str], list[Skipped]]:
    """Decoded images, their files, and the files that could not be read."""
    if files == listing.files and files:  # everything is new: training has decoded it too, and that is cached
        whole = decode_files(listing.root, listing.files, side, listing.stamps, listing.read)
        return whole.images, [files[i] for i in whole.kept], list(whole.skipped)

    def attempt(file: str) -> NDArray[np.uint8] | str:
        try:
            return decode(listing.read(file), side)
        except Exception as error:  # Pillow may raise any exception for a damaged file
            return reason(error)

    with warnings.catch_warnings():  # Pillow warns of large images and of odd metadata
        warnings.simplefilter("ignore")
        results = _in_threads(attempt, files)
    good = [file for file in files if not isinstance(results[file], str)]
    images = np.stack([results[file] for file in good]) if good else np.empty((0, side, side, 3), np.uint8)
    return images, good, [Skipped(f, str(results[f])) for f in files if isinstance(results[f], str)]


def load_pixels(source: Path, files: Sequence[str], side: int) -> dict[str, NDArray[np.uint8]]:
    """Some files of a folder, decoded to (side, side, 3); a file that is gone or damaged is missing."""
    listing = folder.scan(source)
    known = set(listing.files)
    images, good, _ = _decoded(replace(listing, files=[]), [file for file in files if file in known], side)
    return dict(zip(good, images, strict=True))


def detail_reader(
    source: Source, files: Sequence[str]
) -> Callable[[Sequence[int]], dict[int, NDArray[np.uint8]]] | None:
    """A function that reads some files of a folder at the size at which near-duplicates are compared in detail.

    Returns:
        A function of row numbers of `files`; None for a dataset, whose images are small.
    """
    if sets.is_dataset(source):
        return None
    listing = replace(folder.scan(sources.find_folder(os.fspath(source))), files=[])

    def read(rows: Sequence[int]) -> dict[int, NDArray[np.uint8]]:
        numbers = {str(files[row]): row for row in rows}
        images, good, _ = _decoded(listing, list(numbers), DETAIL)
        return {numbers[file]: image for file, image in zip(good, images, strict=True)}

    return read


def link_test(source: Source, files: Sequence[str]) -> Callable[[int], bool] | None:
    """A function that tells whether a file of a folder, by its row number, is a symbolic link; None for a dataset."""
    if sets.is_dataset(source):
        return None
    root = sources.find_folder(os.fspath(source))
    return lambda row: (root / str(files[row])).is_symlink()


def load_thumbnails(source: Path, files: Sequence[str]) -> NDArray[np.uint8]:
    """Thumbnails (N, 96, 96, 3) of files of a folder, from the cache of decoded images; grey if one is gone."""
    listing = folder.scan(source)
    whole = decode_files(listing.root, listing.files, _DESCRIBED, listing.stamps, listing.read)
    row = {listing.files[number]: i for i, number in enumerate(whole.kept)}
    images = np.full((len(files), _DESCRIBED, _DESCRIBED, 3), 128, np.uint8)
    for i, file in enumerate(files):
        if file in row:
            images[i] = whole.images[row[file]]
    return images


def _in_threads(function: Any, files: Sequence[str]) -> dict[str, Any]:
    """The results of a function of a file; reading and decoding release the interpreter lock."""
    with ThreadPoolExecutor(available_cpus()) as pool:
        return dict(zip(files, pool.map(function, files), strict=True))
