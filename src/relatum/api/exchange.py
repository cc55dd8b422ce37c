"""Weights from and for other tools: `export` and `import_weights`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from relatum.api.runs import Run, StrPath, architecture_of, note_unfinished
from relatum.system.torch_state import usual_torch_state

if TYPE_CHECKING:
    from torch import nn


@usual_torch_state
def export(
    run: StrPath | nn.Module,
    *,
    format: str,
    out: StrPath,
    backbone: str | nn.Module | None = None,
    preprocess: bool = False,
) -> Path:
    """Export a backbone for use with other tools.

    Args:
        run: run folder, weights file, or module.
        format: `safetensors` (weights with metadata), `torch` (state dict), `torch-export` (a program for
            `torch.export.load`), `onnx`, or `huggingface` (a folder with weights, config and model card).
        out: output file; a folder for `huggingface`.
        backbone: architecture of a run with a custom backbone, which `torch-export` and `onnx` need:
            `module:function` or a module.
        preprocess: `torch-export` and `onnx` take uint8 pixels (N, H, W, 3) of any size, and resize and normalise them
            as `relatum.embed` does; otherwise they take normalised images (N, 3, H, W).
    """
    from relatum.runs.export import export as write

    note_unfinished(run, "exported")
    source = run if not isinstance(run, str | os.PathLike) else Path(run)
    return write(source, format, Path(out), backbone=architecture_of(run, backbone), preprocess=preprocess)


@usual_torch_state
def import_weights(
    file: StrPath,
    *,
    backbone: str,
    out: StrPath,
    data: str = "cifar10",
    method: str | None = None,
    aggregation: str | None = None,
) -> Run:
    """Create a run folder from weights that were trained elsewhere.

    Args:
        file: the authors' `.tar` checkpoint, a state dict, or safetensors.
        backbone: backbone name.
        out: run folder to create.
        data: dataset that the weights were trained on.
        method: method that trained them; by default inferred from the heads in the file: relational, simclr, rotation,
            deepcluster, deepinfomax or supervised.
        aggregation: aggregation of the relation head: `cat`, `mean`, `sum` or `max`; by default `cat` where its width
            is that of two representations, else `mean`.
    """
    from relatum.runs.import_weights import import_weights

    return Run(import_weights(Path(file), backbone, Path(out), data=data, method=method, aggregation=aggregation))
