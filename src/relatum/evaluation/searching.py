"""`search`: the images of a gallery that are nearest to query images, and a contact sheet."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from relatum.data.decode import decode, reason
from relatum.data.imageset import ImageSet, Skipped
from relatum.drawing import contact_sheet
from relatum.errors import InputError
from relatum.evaluation.embedding import Source, embed, load_for
from relatum.features import extract
from relatum.features.neighbours import nearest
from relatum.runs.weights import load_backbone
from relatum.system.devices import find_device
from relatum.system.files import write_atomically
from relatum.system.progress import Display


@dataclass(frozen=True)
class Hit:
    """One retrieved image: its query, its rank from 1, its file (or number), and its Euclidean distance."""

    query: str
    rank: int
    file: str
    distance: float


def search(
    run: Source | nn.Module,
    gallery: Any,
    queries: Source | Sequence[Source],
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

    Args:
        run: a run folder, a weights file, or a module.
        gallery: a folder of images or a dataset's name; or images, as `embed` takes them.
        queries: an image file, or several.
        top: how many to find for each; fewer where the gallery is smaller.
        out: a PNG to draw: each query with its nearest images.
        backbone: the architecture of a run with a custom backbone: `module:function` or a module.
        split: of a dataset.
        device: `auto`, `cpu`, `cuda` or `mps`.
        root: the folder that holds the datasets.
        progress: show a bar when it takes long.
    """
    if isinstance(queries, str | os.PathLike):
        queries = [queries]
    if not queries:
        raise InputError("there is nothing to search for: name at least one image file.")
    if top < 1:
        raise InputError(f"top = {top} is out of range: it must be at least 1.")
    if isinstance(run, nn.Module):
        module = run
    else:
        module = load_backbone(Path(run), backbone=backbone).to(find_device(device))
    images = load_for(module, gallery, split=split, root=root)
    asked = read_queries(queries, images)
    names = asked.files or []
    for query in asked.skipped:
        Display(quiet=not progress).warn(f"{query.path} cannot be read ({query.reason}): not searched for.")
    z = embed(run, images, architecture=backbone, device=device, progress=progress)
    distances, indices = nearest(extract(module, asked), z, min(top, len(images)))
    hits = [
        Hit(query, rank + 1, file_of(images, int(indices[i, rank])), float(distances[i, rank]))
        for i, query in enumerate(names)
        for rank in range(indices.shape[1])
    ]
    if out is not None:
        sheet = contact_sheet(asked.images, images.images, indices, distances, [Path(q).name for q in names])
        write_atomically(Path(out), lambda path: sheet.save(path, format="PNG"))
    return hits


def file_of(images: ImageSet, index: int) -> str:
    """An image's file, or its number where it has none."""
    return str(index) if images.files is None else images.files[index]


def read_queries(queries: Sequence[Source], like: ImageSet) -> ImageSet:
    """Query files decoded exactly as the gallery was, with its side and normalisation; the unreadable are listed."""
    pixels, files, skipped = [], [], []
    for query in [os.fspath(q) for q in queries]:
        try:
            if not Path(query).exists():
                raise OSError("there is no such file")
            pixels.append(decode(Path(query), like.side))
            files.append(query)
        except Exception as error:  # whatever Pillow raises on a file that it cannot read
            skipped.append(Skipped(query, reason(error)))
    if not pixels:
        raise InputError(f"{skipped[0].path} cannot be read: {skipped[0].reason}.")
    return replace(like, images=np.stack(pixels), labels=None, classes=(), files=files, skipped=tuple(skipped))
