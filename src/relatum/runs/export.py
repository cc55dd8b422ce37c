"""`export`: a trained backbone for other tools, with its metadata and, where asked, its preprocessing inside."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import nn

from relatum.errors import InputError, unknown
from relatum.features.preprocess import Preprocess, Transform
from relatum.runs.model_card import write_folder
from relatum.runs.weights import load_backbone, read_backbone, save_weights
from relatum.system.files import write_atomically, write_bytes
from relatum.version import __version__

FORMATS = ("safetensors", "torch", "torch-export", "onnx", "huggingface")
_GRAPHS = ("torch-export", "onnx")
_ENDINGS = {".safetensors": "safetensors", ".onnx": "onnx", ".pt2": "torch-export"}  # that state a format
Source = str | os.PathLike[str] | nn.Module


def export(
    run: Source, format: str, out: str | Path, *, backbone: str | nn.Module | None = None, preprocess: bool = False
) -> Path:
    """Write a backbone for other tools; the arguments are those of `relatum.export`."""
    out = Path(out)
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    stated = _ENDINGS.get(out.suffix.lower(), format)
    if stated != format:  # a pickle called `.safetensors` would be trusted
        raise InputError(f"--out {out.name} has the ending of the format {stated}, not of {format}.")
    if preprocess and format not in _GRAPHS:
        raise InputError(f"--preprocess is for {' and '.join(_GRAPHS)}; {format} holds weights, not a network.")
    if format in _GRAPHS:
        module, info = _network(run, backbone)
        write_atomically(out, lambda path: _WRITERS[format](path, module, info, preprocess))
        return out
    state, info = _weights(run)
    if format == "safetensors":
        save_weights(out, state, info)
    elif format == "torch":
        buffer = io.BytesIO()  # torch reports a full disk as an internal error, Python as what it is
        torch.save(state, buffer)
        write_bytes(out, buffer.getbuffer())
    else:
        write_folder(out, state, info)
    return out


def _weights(run: Source) -> tuple[Mapping[str, torch.Tensor], dict[str, Any]]:
    return (run.state_dict(), _info(run)) if isinstance(run, nn.Module) else read_backbone(run)


def _info(module: nn.Module) -> dict[str, Any]:
    """The metadata that relatum gave a module; an attribute of the user's own may have the same name."""
    info = getattr(module, "info", None)
    if isinstance(info, dict) and info:
        return dict(info)
    return {"backbone": f"object:{type(module).__name__}", "version": __version__}


def _network(run: Source, backbone: str | nn.Module | None) -> tuple[nn.Module, dict[str, Any]]:
    """A copy of the network in eval mode on the CPU, and its metadata."""
    module = deepcopy(run) if isinstance(run, nn.Module) else load_backbone(run, backbone=backbone)
    module.eval().requires_grad_(False).cpu().float()  # the graph takes float32 images
    return module, _info(module)


def _traced(trace: Callable[[bool], Any], preprocess: bool) -> tuple[Any, bool]:
    """The result of `trace`, and whether height and width are fixed in it: a vision transformer takes one size."""
    for fixed in (False,) if preprocess else (False, True):
        try:
            return trace(fixed), fixed
        except Exception as error:  # torch.export raises many kinds for code that it cannot follow
            failure = error
    reason = next((line.strip() for line in str(failure.__cause__ or failure).splitlines() if line.strip()), "")
    raise InputError(
        f"torch.export cannot follow the code of this network ({reason[:200]}); --format safetensors and torch export"
        " its weights."
    ) from failure


def _program(
    module: nn.Module, info: Mapping[str, Any], preprocess: bool, fixed: bool
) -> tuple[nn.Module, torch.Tensor, Any]:
    """The module to export, an example of its input, and which of its dimensions are free."""
    side = Transform.of(info).side
    batch, height, width = (torch.export.Dim(name, min=1) for name in ("batch", "height", "width"))
    if preprocess:
        example = torch.zeros(2, side + 3, side + 9, 3, dtype=torch.uint8)
        return Preprocess(module, Transform.of(info)).eval(), example, ({0: batch, 1: height, 2: width},)
    free = dict.fromkeys((0,) if fixed else (0, 2, 3), torch.export.Dim.DYNAMIC)
    return module, torch.zeros(2, 3, side, side), (free,)


def facts(info: Mapping[str, Any], preprocess: bool, fixed: bool) -> dict[str, Any]:
    """The metadata of an exported network."""
    side = Transform.of(info).side
    size = f"{side}, {side}" if fixed else "H, W"
    layout = "uint8 pixels (N, H, W, 3), any size" if preprocess else f"normalised float32 images (N, 3, {size})"
    return {**info, "input": layout, "preprocess": preprocess, "exported_by": f"relatum {__version__}"}


def _write_torch_export(path: Path, module: nn.Module, info: Mapping[str, Any], preprocess: bool) -> None:
    def trace(fixed: bool) -> Any:
        network, example, free = _program(module, info, preprocess, fixed)
        return torch.export.export(network, (example,), dynamic_shapes=free)

    program, fixed = _traced(trace, preprocess)
    buffer = io.BytesIO()
    torch.export.save(program, buffer, extra_files={"relatum.json": json.dumps(facts(info, preprocess, fixed))})
    path.write_bytes(buffer.getbuffer())


@contextlib.contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Hide what the user cannot act on: torch's own deprecations, and that torchvision is not installed."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _write_onnx(path: Path, module: nn.Module, info: Mapping[str, Any], preprocess: bool) -> None:
    try:
        import onnxscript  # noqa: F401
    except ImportError:
        raise InputError("ONNX export needs onnx and onnxscript: pip install onnx onnxscript.") from None

    def trace(fixed: bool) -> Any:
        network, example, free = _program(module, info, preprocess, fixed)
        if not preprocess:  # torch.onnx takes names here; with `Dim.DYNAMIC` the dimensions would be called s77 and s53
            free = ({0: "batch"} if fixed else {0: "batch", 2: "height", 3: "width"},)
        with _quiet_exporter():
            return torch.onnx.export(
                network,
                (example,),
                input_names=["pixels" if preprocess else "images"],
                output_names=["representations"],
                dynamic_shapes=free,
                dynamo=True,
                verbose=False,
            )

    program, fixed = _traced(trace, preprocess)
    known = facts(info, preprocess, fixed)
    program.model.metadata_props["relatum"] = json.dumps(known, sort_keys=True)
    for name, value in known.items():
        program.model.metadata_props[name] = value if isinstance(value, str) else json.dumps(value)
    program.model.producer_name, program.model.producer_version = "relatum", __version__
    program.save(str(path), external_data=False)


_WRITERS = {"torch-export": _write_torch_export, "onnx": _write_onnx}
