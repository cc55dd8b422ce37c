"""`embed`: the representations of images, as an array and as a file for other tools."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from relatum import data as sources
from relatum.backbones.base import image_settings
from relatum.collection.indexing import preprocessing
from relatum.data import sets
from relatum.data.imageset import ImageSet
from relatum.errors import InputError
from relatum.evaluation.tables import write_table
from relatum.features import Features, cached, extract
from relatum.runs.folder import RunFolder
from relatum.runs.weights import load_backbone
from relatum.system.devices import find_device
from relatum.system.files import write_atomically

Source = str | os.PathLike[str]


def embed(backbone: Source | nn.Module, data: Any, **options: Any) -> Features:
    """As `embed_images`, but returns only the representations."""
    return embed_images(backbone, data, **options)[0]


def embed_images(
    backbone: Source | nn.Module,
    data: Any,
    *,
    out: Source | None = None,
    architecture: str | nn.Module | None = None,
    split: str = "train",
    root: Source | None = None,
    device: str = "auto",
    batch_size: int = 512,
    progress: bool = True,
) -> tuple[Features, ImageSet]:
    """The (N, d) float32 representations of all images of `data`, and the images.

    A dataset is normalised with its own statistics, as in domain transfer; a folder with the backbone's, so that one
    image has one representation whichever folder it lies in.

    The arguments are those of `relatum.embed`; `data` may also be an `ImageSet`.
    """
    target = None if out is None else _check_target(Path(out))
    if isinstance(backbone, nn.Module):
        module = backbone
    else:
        module = load_backbone(Path(backbone), backbone=architecture).to(find_device(device))
    images = data if isinstance(data, ImageSet) else load_for(module, data, split=split, root=root)
    in_memory = not isinstance(data, ImageSet) and (not sources.is_path(data) or sources.is_image_file(data))
    if isinstance(backbone, nn.Module) or in_memory or not RunFolder(backbone).keeps_results():
        z = extract(module, images, batch_size=batch_size, progress=progress)
    else:
        z = cached(module, images, RunFolder(backbone).features, batch_size=batch_size, progress=progress)
    if target is not None:
        write(target, z, images)
    return z, images


def load_for(backbone: nn.Module, data: Any, *, split: str = "train", root: Source | None = None) -> ImageSet:
    """Images as a backbone wants them: a folder at the side and with the normalisation that it was trained with."""
    place = None if root is None else Path(root)
    if sets.is_dataset(data):
        return sources.load(os.fspath(data), split, root=place)
    if not sources.is_path(data) or sources.is_image_file(data):
        return sources.read_images(data, **image_settings(backbone))
    side, mean, std = preprocessing(backbone)  # as for a list of its files, and for `search`
    folder = data if isinstance(data, str) else Path(data)  # a text may be a URL
    return sources.load(folder, split, root=place, side=side, mean=mean, std=std)


def _check_target(path: Path) -> Path:
    """Check the file's ending and the libraries it needs before any work is done."""
    if path.suffix not in (".npz", ".parquet", ".csv", ".tsv"):
        raise InputError(f"{path} must end in .npz, .parquet, .csv or .tsv.")
    if path.suffix == ".parquet":
        try:
            import pyarrow  # noqa: F401
        except ImportError:
            raise InputError("writing .parquet needs pyarrow: run `pip install pyarrow`, or choose .npz.") from None
    return path


def write(path: Path, z: Features, images: ImageSet) -> None:
    """Write representations with what is known about their images."""
    labels = np.full(len(z), -1, np.int64) if images.labels is None else images.labels
    files = [] if images.files is None else [str(f) for f in images.files]
    if path.suffix == ".parquet":
        write_atomically(path, lambda p: _write_parquet(p, z, labels, files, images.classes))
        return
    if path.suffix in (".csv", ".tsv"):
        write_table(path, z, labels, files, images.classes)
        return

    def save(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez(
                file, features=z, labels=labels, files=np.array(files, np.str_), names=np.array(images.classes, np.str_)
            )

    write_atomically(path, save)


def _write_parquet(path: Path, z: Features, labels: Any, files: list[str], names: tuple[str, ...]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    size = z.shape[1]
    columns = {
        "features": pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(z).reshape(-1)), size),
        "label": pa.array(labels),
    }
    if files:
        columns["file"] = pa.array(files)
    if names:
        columns["name"] = pa.array([names[i] if i >= 0 else None for i in labels])
    pq.write_table(pa.table(columns), path)
