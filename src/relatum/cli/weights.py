"""Commands that exchange weights with other tools: `export` and `import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from relatum.cli.options import Backbone, echo


def export(
    run: Annotated[Path, Argument(metavar="RUN", help="run folder or weights file")],
    format: Annotated[str, Option(help="safetensors, torch, torch-export, onnx or huggingface")],
    out: Annotated[Path, Option(metavar="FILE", help="output file; a folder for huggingface")],
    backbone: Backbone = None,
    preprocess: Annotated[
        bool, Option("--preprocess", help="onnx and torch-export: take pixels of any size; resize and normalise inside")
    ] = False,
) -> None:
    """Export a run's backbone for use with other tools."""
    from relatum import api

    echo(api.export(run, format=format, out=out, backbone=backbone, preprocess=preprocess))


def import_weights(
    file: Annotated[Path, Argument(metavar="FILE", help="the authors' .tar, a state dict, or safetensors")],
    backbone: Annotated[str, Option(help="backbone name (see `relatum list backbones`)")],
    out: Annotated[Path, Option(metavar="RUN", help="run folder to create")],
    data: Annotated[str, Option(help="dataset that the weights were trained on")] = "cifar10",
    method: Annotated[
        str | None, Option(help="method that trained them (default: inferred from the heads in the file)")
    ] = None,
    aggregation: Annotated[
        str | None,
        Option(help="aggregation of the relation head: cat, mean, sum or max (default: cat or mean, as it fits)"),
    ] = None,
) -> None:
    """Create a run folder from weights that were trained elsewhere."""
    from relatum import api

    run = api.import_weights(file, backbone=backbone, out=out, data=data, method=method, aggregation=aggregation)
    echo(run.path)
