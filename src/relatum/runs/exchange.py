"""Weights in and out of relatum: `relatum export` and `relatum import`."""

from __future__ import annotations

from pathlib import Path

import torch

from relatum import backbones, config, registry
from relatum.config.methods import METHODS
from relatum.errors import InputError, unknown
from relatum.runs import checkpoint, names
from relatum.runs.folder import RunFolder
from relatum.runs.weights import (
    load_backbone,
    load_state,
    read_backbone,
    save_run_weights,
    save_weights,
    weights_metadata,
)
from relatum.system.files import write_atomically
from relatum.version import __version__

FORMATS = ("safetensors", "torch", "onnx")


def export(run: str | Path, format: str, out: str | Path, *, backbone: str | torch.nn.Module | None = None) -> Path:
    """Write a run's backbone for other tools.

    Args:
        run: a run folder or a weights file.
        format: `safetensors` (with metadata), `torch` (a plain state dict; a ResNet-34's loads into the usual class),
            or `onnx` (the network itself, any batch size; needs the extra `onnx`).
        out: the file to write.
        backbone: the architecture of a run with a custom backbone, which ONNX needs.
    """
    out = Path(out)
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    if format == "safetensors":
        state, metadata = read_backbone(run)
        save_weights(out, state, metadata)
    elif format == "torch":
        write_atomically(out, lambda path: torch.save(read_backbone(run)[0], path))
    else:
        write_atomically(out, lambda path: _write_onnx(run, path, backbone))
    return out


def _write_onnx(run: str | Path, path: Path, backbone: str | torch.nn.Module | None) -> None:
    try:
        import onnxscript  # noqa: F401
    except ImportError:
        raise InputError("ONNX export needs the extra: pip install 'relatum[onnx]'.") from None
    module = load_backbone(run, backbone=backbone)
    side = read_backbone(run)[1].get("side") or 32
    batch = torch.export.Dim("batch", min=1)
    program = torch.onnx.export(
        module,
        (torch.zeros(2, 3, side, side),),
        input_names=["images"],
        output_names=["representations"],
        dynamic_shapes=({0: batch},),
        dynamo=True,
        verbose=False,
    )
    assert program is not None
    program.save(str(path))


def import_weights(
    file: str | Path, backbone: str, out: str | Path, *, data: str = "cifar10", method: str | None = None
) -> Path:
    """Create a run folder from weights that others trained, ready for `relatum evaluate`.

    Args:
        file: an authors' `.tar` checkpoint (`backbone`, `relation`), a torchvision state dict, or safetensors.
        backbone: the architecture's name.
        out: the run folder to create.
        data: the dataset that it was trained on.
        method: the method that it was trained with; by default relational if the file contains a relation head, else
            supervised.
    """
    folder = RunFolder(out)
    if folder.exists():
        raise InputError(f"{folder.path} already contains a run; choose another --out.")
    state, _ = read_backbone(file)
    module = backbones.build(backbone)
    load_state(module, state, file)
    relation = {} if Path(file).suffix == names.WEIGHTS_ENDING else checkpoint.load(Path(file)).get("relation", {})
    if not all(isinstance(value, torch.Tensor) for value in relation.values()):
        raise InputError(f"the relation head in {file} contains more than tensors.")
    method = method or ("relational" if relation else "supervised")
    registry.find(METHODS, "method", method)
    recipe = config.draft(
        flags={
            "data.name": data,
            "backbone.name": backbone,
            "method": method,
            "preset": "official",
            "init": Path(file).name,
            "train.epochs": 0,
        }
    ).recipe({"version": __version__, "run.device": "cpu", "run.compile": "off"})
    metadata = weights_metadata(recipe, backbones.feature_size(module))
    with folder.lock():
        try:
            save_run_weights(folder.path, module.state_dict(), relation, metadata)
            folder.update_record(status="imported", source=Path(file).name, version=__version__)
            folder.write_recipe(recipe)  # last: only a folder with a recipe is a run
        except BaseException:
            folder.clear()
            raise
    return folder.path
