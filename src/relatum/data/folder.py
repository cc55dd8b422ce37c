"""Reads a folder of images.

Files: all files with an extension of a format that Pillow decodes, at any depth, and files without an extension that
start like an image. Links are followed, each folder is read once. Names that start with a dot (`.ipynb_checkpoints`,
`._photo.jpg`), folders of thumbnails (`@eaDir`) and other files are ignored, and so are sub-folders that relatum has
written (runs and results, see `relatum.system.outputs`). HEIC files without their plug-in, RAW files and SVG drawings
are listed as skipped, with what helps.

Splits, labels and the side follow the rules of `relatum.data.layout`.

A tar file of images, or a folder of tar files without images (`shards`), is read like the folder that was packed.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from relatum import rng
from relatum.data import shards
from relatum.data.decode import Source, extensions, image_size
from relatum.data.decoded import Decoded, Read, Stamp, decode_files
from relatum.data.file_kinds import NOT_PHOTOS, kind_by_content, why_not_read
from relatum.data.imageset import ImageSet, Skipped
from relatum.data.layout import (
    SAMPLE,
    checked_classes,
    class_names,
    first_skipped,
    no_readable_image,
    side_of,
    split_names,
)
from relatum.data.paths import Absent
from relatum.errors import InputError
from relatum.system.outputs import RUN_FOLDERS, is_output


@dataclass(frozen=True)
class Listing:
    """The image files of a folder: sorted relative paths, their stamps, and folders that could not be read."""

    root: Path
    files: list[str]
    stamps: list[Stamp]
    skipped: list[Skipped]
    source: Read | None = None  # reads an image of a shard by its path in the packed folder

    def read(self, file: str) -> Source:
        """The path of a file, or its bytes."""
        return self.root / file if self.source is None else self.source(file)

    def under(self, sub: str) -> Listing:
        """The files of a sub-folder, relative to it."""
        head = sub + os.sep
        rows = [(f.removeprefix(head), s) for f, s in zip(self.files, self.stamps, strict=True) if f.startswith(head)]
        skipped = [Skipped(s.path.removeprefix(head), s.reason) for s in self.skipped if s.path.startswith(head)]
        whole = self.source
        source = None if whole is None else lambda file: whole(head + file)
        return Listing(self.root / sub, [f for f, _ in rows], [s for _, s in rows], skipped, source)


def scan(root: Path) -> Listing:
    """List the image files under a folder, or in its shards."""
    if (packed := shards.find(root)) is not None:
        index = shards.Index(packed, some=root.is_file())
        return Listing(root, index.files, index.stamps, index.skipped, index.read)
    stamps: dict[str, Stamp] = {}
    skipped: list[Skipped] = []
    _check(root)
    waiting: list[str] = [""]
    links: list[str] = []
    seen: set[tuple[int, int]] = set()
    while waiting or links:
        folder = waiting.pop() if waiting else links.pop(0)  # links last: a folder is listed by its real name
        try:
            status = (root / folder).stat()
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            entries = sorted(os.scandir(root / folder), key=lambda e: e.name)
        except OSError as error:
            skipped.append(Skipped(folder or ".", (error.strerror or str(error)).lower()))
            continue
        visible = [e for e in entries if not e.name.startswith(".")]
        if is_output([e.name for e in entries]):
            if folder:
                continue
            visible = [e for e in visible if e.name not in RUN_FOLDERS]  # photos and a run in the same folder
        if not visible and Path(folder).suffix.lower() in extensions():
            skipped.append(Skipped(folder, "is a directory"))
        for e in visible:
            path = os.path.join(folder, e.name)  # noqa: PTH118 - Path() would change names such as "./x"
            if _is_dir(e):
                if e.name in NOT_PHOTOS:
                    continue
                (links if e.is_symlink() else waiting).append(path)
            elif os.path.splitext(e.name)[1].lower() in extensions():  # noqa: PTH122
                stamps[path] = _stamp(e)
            elif (advice := why_not_read(e.name)) is not None:
                skipped.append(Skipped(path, advice))
            elif "." not in e.name and (kind := kind_by_content(root / path)) is not None:
                if kind not in extensions() and (advice := why_not_read(f"image{kind}")) is not None:
                    skipped.append(Skipped(path, advice))
                else:
                    stamps[path] = _stamp(e)
    files = sorted(stamps)
    return Listing(root, files, [stamps[f] for f in files], sorted(skipped, key=lambda s: s.path))


def _check(root: Path) -> None:
    if not root.is_dir():
        raise InputError(f"{root} is not a folder.")
    if not os.access(root, os.R_OK | os.X_OK):
        raise InputError(f"{root} cannot be read: permission denied.")


def _is_dir(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _stamp(entry: os.DirEntry[str]) -> Stamp:
    try:
        status = entry.stat()
    except OSError:  # a broken link; decoding reports it
        return 0, 0, 0
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def load(path: Path, split: str = "train", *, side: int | None = None) -> ImageSet:
    """Read a split of a folder of images, by the rules at the top of this module."""
    listing = scan(path)
    parts = splits(listing)
    if split not in parts:
        have = " and ".join(parts)
        advice = (
            "put images in train/ and test/, or hold a part out (pretrain --val-fraction 0.2, evaluate --split val)"
            if len(parts) == 1
            else "choose one of them"
        )
        raise Absent(f"{path} has no '{split}' split, only {have}: {advice}.")
    train = _decoded(parts["train"], side)
    classes = class_names(folders_of(parts["train"].files[i] for i in train.kept))
    part, decoded = parts[split], train
    if split != "train":
        decoded = _decoded(part, int(train.images.shape[1]))
    files = [part.files[i] for i in decoded.kept]
    if split != "train" and split != "unlabeled":
        folders = folders_of(files)
        classes = checked_classes(classes, folders, str(part.root)) if classes else class_names(folders)
    labels = _labels(files, classes) if classes and split != "unlabeled" else None
    inside = "" if part is listing else part.root.name + os.sep
    skipped = [replace(s, path=inside + s.path) for s in (*part.skipped, *decoded.skipped)]
    return ImageSet(
        name=path.resolve().name or str(path),
        split=split,
        images=decoded.images,
        labels=labels,
        classes=classes if labels is not None else (),
        mean=train.mean,
        std=train.std,
        pad=int(decoded.images.shape[1]) // 8,
        files=[inside + file for file in files],
        skipped=tuple(sorted(skipped, key=lambda s: s.path)),
    )


def splits(listing: Listing) -> dict[str, Listing]:
    """The splits of a folder: its sub-folders `train`, `test`, ... if it has them, else everything as `train`."""
    names = split_names({file.partition(os.sep)[0] if os.sep in file else "" for file in listing.files})
    return {"train": listing} if names is None else {split: listing.under(top) for top, split in names.items()}


def _decoded(part: Listing, side: int | None) -> Decoded:
    decoded = None
    if part.files:
        decoded = decode_files(part.root, part.files, side or _side(part), part.stamps, part.read)
    if decoded is None or not decoded.kept:
        raise no_readable_image(part.root, (*part.skipped, *(decoded.skipped if decoded else ())))
    return decoded


def _side(part: Listing) -> int:
    step = max(1, len(part.files) // SAMPLE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's warnings
        return side_of([image_size(part.read(file)) for file in part.files[::step]])


def folders_of(files: Iterable[str]) -> set[str]:
    """The folders that hold files, relative to where the files' paths begin; empty text for the root."""
    return {os.path.dirname(file) for file in files}  # noqa: PTH120


def _labels(files: Sequence[str], classes: tuple[str, ...]) -> NDArray[np.int64]:
    number = {name: i for i, name in enumerate(classes)}
    return np.array([number[os.path.dirname(file)] for file in files], np.int64)  # noqa: PTH120


def shard(path: Path, out: Path, size: int | None = None, seed: int | None = None) -> list[Path]:
    """Pack a folder of images into shards, in the order of their names, or shuffled with a seed.

    Returns:
        The tar files written. The index of their images is written beside them.
    """
    listing = scan(path)
    if not listing.files:
        raise InputError(f"{path} contains no images to pack{first_skipped(listing.skipped)}.")
    files = listing.files
    if seed is not None:
        files = [files[i] for i in rng.permutation(len(files), rng.ORDER, seed)]
    return shards.write(files, listing.read, out, size or shards.SHARD_BYTES, listing.skipped)
