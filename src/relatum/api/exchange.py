"""Weights from and for other tools: `export` and `import_weights`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from relatum.api.runs import Run, StrPath

if TYPE_CHECKING:
    from torch import nn


def export(run: StrPath, *, format: str, out: StrPath, backbone: str | nn.Module | None = None) -> Path:
    """Export a run's backbone for use with other tools.

    Args:
        run: run folder or weights file.
        format: `safetensors`, `torch` or `onnx`.
        out: output file.
        backbone: architecture of a run with a custom backbone, which ONNX needs: `module:function` or a module.
    """
    from relatum.runs import exchange

    return exchange.export(Path(run), format, Path(out), backbone=backbone)


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
        method: method that trained them; by default what the heads in the file tell: relational, simclr, rotation,
            deepinfomax or supervised.
        aggregation: aggregation of the relation head: `cat`, `mean`, `sum` or `max`; by default `cat` where its width
            is that of two representations, else `mean`.
    """
    from relatum.runs import exchange

    return Run(
        exchange.import_weights(Path(file), backbone, Path(out), data=data, method=method, aggregation=aggregation)
    )
