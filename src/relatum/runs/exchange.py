"""Weights in and out of relatum: `relatum export` and `relatum import`."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from relatum import backbones, config, registry
from relatum.config.methods import METHODS, SimCLROptions
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
from relatum.system.files import write_atomically, write_bytes
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
        buffer = io.BytesIO()
        torch.save(read_backbone(run)[0], buffer)
        write_bytes(out, buffer.getbuffer())
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
    file: str | Path,
    backbone: str,
    out: str | Path,
    *,
    data: str = "cifar10",
    method: str | None = None,
    aggregation: str | None = None,
) -> Path:
    """Create a run folder from weights that others trained, ready for `relatum evaluate`.

    Args:
        file: an authors' `.tar` checkpoint (`backbone`, `relation`), a torchvision state dict, or safetensors.
        backbone: the architecture's name.
        out: the run folder to create.
        data: the dataset that it was trained on.
        method: the method that it was trained with; by default what the heads in the file tell (`find_method`).
        aggregation: of the relation head; by default `cat` for one that takes two representations, else `mean`.
    """
    folder = RunFolder(out)
    if folder.exists():
        raise InputError(f"{folder.path} already contains a run; choose another --out.")
    state, _ = read_backbone(file)
    module = backbones.build(backbone)
    load_state(module, state, file)
    content = {} if Path(file).suffix == names.WEIGHTS_ENDING else checkpoint.load(Path(file))
    relation = content.get("relation", {})
    if not all(isinstance(value, torch.Tensor) for value in relation.values()):
        raise InputError(f"the relation head in {file} contains more than tensors.")
    method = method or find_method(content)
    registry.find(METHODS, "method", method)
    size = backbones.feature_size(module)
    head = {"objective.aggregation": find_aggregation(relation, size, aggregation)} if relation else {}
    recipe = config.draft(
        flags={
            **(head if method == "relational" else {}),
            "data.name": data,
            "backbone.name": backbone,
            "method": method,
            "preset": "official",
            "init": Path(file).name,
            "train.epochs": 0,
        }
    ).recipe({"version": __version__, "run.device": "cpu", "run.compile": "off"})
    metadata = weights_metadata(recipe, size)
    with folder.lock():
        try:
            save_run_weights(folder.path, module.state_dict(), relation, metadata)
            folder.update_record(status="imported", source=Path(file).name, version=__version__)
            folder.write_recipe(recipe)  # last: only a folder with a recipe is a run
        except BaseException:
            folder.clear()
            raise
    return folder.path


def find_method(content: Mapping[str, Any]) -> str:
    """The method that trained an authors' checkpoint, by the heads that it holds beside the backbone.

    A relation head: relational. Discriminators of a prior or of local features: Deep InfoMax. An MLP that ends in 64
    outputs: SimCLR. A linear classifier of four outputs: RotationNet. Anything else: supervised.
    """
    if content.get("relation"):
        return "relational"
    if not isinstance(content.get("backbone"), Mapping):  # a plain state dict
        return "supervised"
    heads = {name: value for name, value in content.items() if name not in ("backbone", "optimizer")}
    tensors = dict(_tensors(heads))
    if any(word in name.lower() for name in tensors for word in ("prior", "local", "discriminator")):
        return "deepinfomax"
    matrices = [value for value in tensors.values() if value.ndim == 2]
    outputs = [int(value.shape[0]) for value in matrices]
    if len(matrices) >= 2 and outputs[-1] == SimCLROptions.projection:
        return "simclr"
    return "rotation" if outputs == [4] else "supervised"


def _tensors(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    for name, value in tree.items():
        if isinstance(value, torch.Tensor):
            yield f"{prefix}{name}", value
        elif isinstance(value, Mapping):
            yield from _tensors(value, f"{prefix}{name}.")


def find_aggregation(relation: Mapping[str, torch.Tensor], num_features: int, given: str | None) -> str:
    """The aggregation of a relation head, checked against the width of its first layer.

    Sum, mean and max have the same shapes, and a checkpoint does not say which it was: `mean` unless `given`.
    """
    width = relation["linear1.weight"].shape[1] if "linear1.weight" in relation else 0
    if width not in (num_features, 2 * num_features):
        fits = f"{num_features} or {2 * num_features}"
        raise InputError(f"the relation head takes {width} numbers; {fits} would fit this backbone.")
    fitting = ("cat",) if width == 2 * num_features else ("mean", "sum", "max")
    if given is not None and given not in fitting:
        raise InputError(f"--aggregation {given} does not fit: a head of {width} inputs is {' or '.join(fitting)}.")
    return given or fitting[0]
