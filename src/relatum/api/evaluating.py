"""Functions that use a trained backbone: `evaluate`, `embed`, `search` and `report`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from relatum import config, evaluation
from relatum.api.runs import StrPath, architecture_of, as_list, data_name, note_unfinished, optional_path
from relatum.errors import InputError
from relatum.evaluation import Result
from relatum.runs import ledger
from relatum.system.torch_state import usual_torch_state

if TYPE_CHECKING:  # torch and numpy are imported when a backbone is loaded
    import numpy as np
    from numpy.typing import NDArray
    from torch import nn

    from relatum.evaluation.searching import Hit


@usual_torch_state
def evaluate(
    protocol: str,
    run: StrPath | nn.Module,
    *,
    data: StrPath,
    split: str = "test",
    epochs: int | None = None,
    seed: int | None = None,
    tag: str = "",
    backbone: str | nn.Module | None = None,
    settings: Mapping[str, Any] | None = None,
    device: str = "auto",
    root: StrPath | None = None,
    progress: bool = True,
) -> Result:
    """Evaluate the backbone of a run and write RUN/evaluations/PROTOCOL-DATASET-SPLIT[-TAG].json.

    Args:
        protocol: `linear`, `knn`, `finetune`, `retrieval` or `tsne`.
        run: run folder, or a ledger entry with weights, which is unpacked to a run folder under `runs` first; or a
            module, whose result is returned and not saved.
        data: dataset name or folder of images.
        split: `test`, or `val` for the part of the training set that the run held out.
        epochs: number of training epochs of the linear probe or of finetuning.
        seed: random seed of the evaluation; 1 by default.
        tag: suffix of the result file's name.
        backbone: architecture of a run with a custom backbone: `module:function` or a module.
        settings: settings of the protocol by name, as in `--set key=value`.
        device: `auto`, `cpu`, `cuda` or `mps`.
        root: data root folder.
        progress: show progress bars.
    """
    if settings is not None and not isinstance(settings, Mapping):
        raise InputError(f"settings is a dict such as {{'k': 5}}, not {type(settings).__name__}.")
    options: dict[str, Any] = {
        "data": data_name(data),
        "split": split,
        "epochs": epochs,
        "seed": None if seed is None else config.seed(seed),
        "tag": str(tag),
        "settings": settings,
        "root": optional_path(root),
        "device": device,
        "progress": progress,
    }
    if not isinstance(run, str | os.PathLike):
        note_unfinished(run, "evaluated")
        return evaluation.evaluate_module(protocol, run, **options)
    path = Path(run)
    if ledger.is_entry_file(path):
        path = ledger.unpack(path)
    note_unfinished(path, "evaluated")
    return evaluation.evaluate(protocol, path, backbone=architecture_of(run, backbone), **options)


@overload
def embed(
    backbone: StrPath | nn.Module,
    data: Any,
    *,
    return_files: Literal[False] = False,
    out: StrPath | None = None,
    architecture: str | nn.Module | None = None,
    split: str = "train",
    device: str = "auto",
    root: StrPath | None = None,
    batch_size: int = 512,
    progress: bool = True,
) -> NDArray[np.float32]: ...


@overload
def embed(
    backbone: StrPath | nn.Module,
    data: Any,
    *,
    return_files: Literal[True],
    out: StrPath | None = None,
    architecture: str | nn.Module | None = None,
    split: str = "train",
    device: str = "auto",
    root: StrPath | None = None,
    batch_size: int = 512,
    progress: bool = True,
) -> tuple[NDArray[np.float32], list[str]]: ...


@usual_torch_state
def embed(
    backbone: StrPath | nn.Module,
    data: Any,
    *,
    return_files: bool = False,
    out: StrPath | None = None,
    architecture: str | nn.Module | None = None,
    split: str = "train",
    device: str = "auto",
    root: StrPath | None = None,
    batch_size: int = 512,
    progress: bool = True,
) -> NDArray[np.float32] | tuple[NDArray[np.float32], list[str]]:
    """Compute the (N, d) float32 representations of all images of `data`.

    Args:
        backbone: run folder, weights file, or module (`relatum.load_backbone`).
        data: dataset name, folder of images, or image file; or images in memory: one of them or a list of paths,
            Pillow images, arrays (H, W, 3) or tensors (3, H, W), uint8 or floats in [0, 1].
        return_files: return the file name of each row as well (its number where images are not files). Files that
            cannot be read have no row.
        out: file to write as well: `.npz`, `.parquet` (needs pyarrow), `.csv` or `.tsv`.
        architecture: of a run with a custom backbone: `module:function` or a module.
        split: split of a dataset.
        device: device for a backbone that is loaded here; a module stays where it is.
        root: data root folder.
        batch_size: images per forward pass.
        progress: show a progress bar.
    """
    from relatum.evaluation import embedding

    note_unfinished(backbone, "used", show=progress)
    try:
        z, images = embedding.embed_images(
            backbone,
            data,
            out=out,
            architecture=architecture_of(backbone, architecture),
            split=split,
            device=device,
            root=root,
            batch_size=batch_size,
            progress=progress,
        )
    except InputError as error:  # here, `backbone` is the run itself
        error.args = (str(error.args[0]).replace("backbone=", "architecture="),)
        raise
    if not return_files:
        return z
    return z, [str(n) for n in range(len(z))] if images.files is None else [str(file) for file in images.files]


@usual_torch_state
def search(
    run: StrPath | nn.Module,
    gallery: Any,
    queries: Any,
    *,
    top: int = 10,
    out: StrPath | None = None,
    backbone: str | nn.Module | None = None,
    split: str = "train",
    device: str = "auto",
    root: StrPath | None = None,
    progress: bool = True,
) -> list[Hit]:
    """Find the images of a gallery that are nearest to each query image.

    The representations of a folder or dataset are kept in the run folder: a second search computes nothing, and of new
    images only the new ones are read. Files with the same bytes count as one image.

    Args:
        run: run folder, weights file, or module.
        gallery: folder of images or dataset name; or images in memory, as in `embed`.
        queries: an image file, a Pillow image, an array or a tensor, or several of them, as in `embed`.
        top: number of images to return per query.
        out: PNG file for a contact sheet: each query and the images nearest to it, with file names.
        backbone: architecture of a run with a custom backbone: `module:function` or a module.
        split: split of a dataset, or of a folder with sub-folders `train` and `test`.
        device: `auto`, `cpu`, `cuda` or `mps`.
        root: data root folder.
        progress: show a progress bar.
    """
    from relatum.evaluation import searching

    note_unfinished(run, "searched with", show=progress)
    return searching.search(
        run,
        gallery,
        queries,
        top=top,
        out=out,
        backbone=architecture_of(run, backbone),
        split=split,
        device=device,
        root=root,
        progress=progress,
    )


def report(runs: Sequence[StrPath] | StrPath, *, out: StrPath | None = None) -> Path:
    """Write one self-contained HTML report of one run, or of several side by side.

    Args:
        runs: run folders, or one.
        out: output file; `report.html` in the first run by default.
    """
    from relatum.report import build

    return build([Path(run) for run in as_list(runs)], optional_path(out))
