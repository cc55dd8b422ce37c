"""Weights of backbones and heads: safetensors files with their metadata, and backbones rebuilt from them.

The metadata is one key, `relatum`, with a JSON string: backbone, num_features, mean, std, side, dataset, method, preset
and version. It is enough to rebuild the backbone and to normalise images for it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from relatum import backbones, registry
from relatum.config import Recipe
from relatum.errors import InputError
from relatum.features.preprocess import Transform
from relatum.runs import checkpoint, digest, names
from relatum.runs.folder import RunFolder
from relatum.runs.results import STEP
from relatum.system.files import nearest_path, write_bytes
from relatum.system.progress import Display
from relatum.system.text import counted
from relatum.system.torch_state import usual_torch_state
from relatum.system.untrusted import check_regular
from relatum.version import __version__

_KEY = "relatum"
# Limits for the metadata of a weights file: larger values would only make relatum allocate memory.
_MAX_SIDE, _MAX_FEATURES = 4096, 1_000_000
_MAX_TEXT, _TEXTS = 1000, ("backbone", "dataset", "method", "preset", "version")
_REMOVED = 128 << 20  # weights of a network that are removed while it is built: VGG's classifier has 124 million
Source = str | os.PathLike[str]


def weights_metadata(recipe: Recipe, num_features: int) -> dict[str, Any]:
    """The metadata of a run's weights.

    Args:
        recipe: the run's complete recipe. Imported weights may lack a side, mean and standard deviation; they get 32
            pixels, 0.5 and 0.25.
        num_features: the size of a representation.
    """
    return {
        "backbone": recipe.backbone.name,
        "num_features": num_features,
        "mean": list(recipe.data.mean or (0.5,) * 3),
        "std": list(recipe.data.std or (0.25,) * 3),
        "side": recipe.data.side or 32,
        "dataset": Path(recipe.data.name).name,
        "method": recipe.method,
        "preset": recipe.preset,
        "version": __version__,
    }


def save_weights(path: Path, state: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """Write weights as safetensors, with a digest of weights and metadata in the metadata.

    All metadata is under one key: safetensors writes several keys in random order, which would change the bytes.
    """
    check_storable(state)
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in state.items()}
    metadata = {key: value for key, value in metadata.items() if key != digest.KEY}
    metadata[digest.KEY] = _digest(tensors, metadata)
    write_bytes(path, save(tensors, metadata={_KEY: json.dumps(metadata, sort_keys=True)}))


def check_storable(state: Mapping[str, Any]) -> None:
    """Refuse a network whose state a weights file cannot keep, or `load_state` would not take back."""
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise InputError(f"the backbone keeps {name}, which is no tensor: a weights file cannot contain it.")
        if value.is_complex():
            raise InputError(f"the backbone has complex numbers in {name}: a weights file cannot contain them.")


def _digest(tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> str:
    return digest.digest([dict(sorted(tensors.items())), json.dumps(metadata, sort_keys=True)])


def save_run_weights(
    run: Source, backbone: Mapping[str, Tensor], relation: Mapping[str, Tensor], metadata: Mapping[str, Any]
) -> None:
    """Write the relation head, if there is one, and then the backbone, whose file marks a run as finished."""
    folder = RunFolder(run)
    if relation:
        save_weights(folder.relation, relation, metadata)
    save_weights(folder.backbone, backbone, metadata)


def load_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Weights and their metadata from a safetensors file; its digest, if it has one, is checked and left out.

    Raises:
        InputError: the file is missing or damaged.
    """
    try:
        check_regular(path)  # safetensors would wait for the other end of a pipe, for ever
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            metadata = _check_metadata(json.loads(header.get(_KEY) or _lost_metadata(header)), path)
    except FileNotFoundError:
        raise InputError(f"no weights at {path}.") from None
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is not a readable safetensors file: {error}") from None
    stored = metadata.pop(digest.KEY, None)  # None: written by another tool or by an older version
    if stored is not None and stored != _digest(state, metadata):
        hint = " `relatum pretrain --resume` writes it again." if path.name in (names.BACKBONE, names.RELATION) else ""
        raise InputError(f"{path} is damaged: its contents do not match its checksum.{hint}")
    return state, metadata


def _lost_metadata(header: Mapping[str, str]) -> str:
    """Empty metadata for a file of another program; an error if it is relatum's metadata under a damaged name."""
    if any(f'"{digest.KEY}": "sha256:' in value for value in header.values()):
        raise ValueError("the name of its metadata is damaged")
    return "{}"


def _check_metadata(metadata: Any, path: Path) -> dict[str, Any]:
    """Check the metadata values of a weights file that are used later: the file may be untrusted."""
    if not isinstance(metadata, dict):
        raise InputError(f"{path}: the metadata is not a JSON object.")
    for name, most in (("side", _MAX_SIDE), ("num_features", _MAX_FEATURES)):
        value = metadata.get(name)
        if value is not None and (type(value) is not int or not 0 < value <= most):
            raise InputError(f"{path}: {name} = {value!r} in the metadata is not a number from 1 to {most:,}.")
    for name in ("mean", "std"):
        value = metadata.get(name)
        if value is not None and not (isinstance(value, list) and len(value) == 3 and all(map(_is_colour, value))):
            raise InputError(f"{path}: {name} in the metadata is not three numbers.")
    for name in _TEXTS:
        value = metadata.get(name)
        if value is not None and not (isinstance(value, str) and len(value) <= _MAX_TEXT):
            raise InputError(f"{path}: {name} in the metadata is not a text of at most {_MAX_TEXT:,} characters.")
    if any(value == 0 for value in metadata.get("std") or ()):
        raise InputError(f"{path}: a standard deviation in the metadata is zero.")
    return metadata


def _is_colour(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= 1000  # NaN is not


def read_backbone(source: Source) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Backbone weights and their metadata.

    Args:
        source: a run folder, a Hugging Face folder of relatum, a safetensors file, a checkpoint of relatum, an authors'
            checkpoint or a state dict. An unfinished run gives the weights of its newest checkpoint.
    """
    path = Path(source)
    if RunFolder(path).is_hub_folder():
        path = path / names.HUB_WEIGHTS
    if path.is_dir():
        return _read_run(RunFolder(path))
    if not path.exists():
        near = nearest_path(path)
        hint = f"; did you mean '{near}'?" if near else "."
        raise InputError(f"no run or weights at {path}{hint}")
    if path.suffix == names.WEIGHTS_ENDING:
        return load_weights(path)
    state = checkpoint.load(path)
    if isinstance(state.get("objective"), dict):
        return _from_objective(state, path)
    # The authors' checkpoints keep the backbone under this key.
    return _plain_names(check_tensors(state.get("backbone", state), path), path), {}


def _from_objective(state: Mapping[str, Any], path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The backbone in a checkpoint of a run, and its metadata."""
    metadata = _check_metadata(state.get("info"), path)
    named = {name: value for name, value in state["objective"].items() if isinstance(name, str)}
    return check_tensors(backbone_state(named), path), metadata


def check_tensors(weights: Any, path: Path | str) -> dict[str, Tensor]:
    """Weights that are a dictionary of tensors by name, or an error."""
    if not isinstance(weights, dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in weights.items()
    ):
        raise InputError(f"{path} contains no backbone weights.")
    return weights


def _read_run(folder: RunFolder) -> tuple[dict[str, Tensor], dict[str, Any]]:
    if folder.finished():
        return load_weights(folder.backbone)
    newest = checkpoint.newest(folder.path, warn=Display().warn)
    if newest is None:
        if folder.exists():
            raise InputError(
                f"{folder.path} has no weights yet: training has not saved a checkpoint. "
                "Wait until it has, or resume the run if it was stopped."
            )
        raise InputError(f"{folder.path} has no {names.BACKBONE} and no checkpoint; is it a run folder?")
    state, metadata = _from_objective(newest[1], newest[0])
    return state, {**metadata, STEP: newest[1]["step"]}


def _plain_names(weights: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Names without the prefixes of data-parallel training and `torch.compile`, and without a classifier `fc`."""
    plain = {
        name: name.removeprefix("_orig_mod.").removeprefix("module.").removeprefix("_orig_mod.") for name in weights
    }
    if len(set(plain.values())) < len(plain):
        raise InputError(f"{path} contains the weights of two networks, of which one has names that begin with module.")
    return {plain[name]: value for name, value in weights.items() if not plain[name].startswith("fc.")}


def backbone_state(objective: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The backbone's part of an objective's state dict."""
    return _without_prefix(objective, "backbone.")


def relation_state(objective: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The relation head's part of an objective's state dict; empty for methods without one."""
    return _without_prefix(objective, "relation.")


def _without_prefix(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def load_state(module: nn.Module, state: Mapping[str, Tensor], source: Source) -> None:
    """Load a state dict strictly; a mismatch or a value that is not finite is an error that names the tensor."""
    if backbones.has_lazy_weights(module):
        raise InputError(
            f"{source} cannot be loaded into a network with lazy layers: pass images through the network once before."
        )
    expected = module.state_dict()
    state = _with_counts(state, expected)
    missing, extra = sorted(expected.keys() - state.keys()), sorted(state.keys() - expected.keys())
    wrong = [name for name in expected.keys() & state.keys() if expected[name].shape != state[name].shape]
    if missing or extra or wrong:
        first = (
            f"{missing[0]} is missing"
            if missing
            else f"{extra[0]} is unknown"
            if extra
            else f"{wrong[0]} has another shape"
        )
        count = len(missing) + len(extra) + len(wrong)
        raise InputError(f"{source} does not fit this backbone: {first} ({counted(count, 'difference')} in all).")
    for name, value in state.items():
        if value.is_floating_point() != expected[name].is_floating_point() or value.is_complex():
            raise InputError(f"{source} does not fit this backbone: {name} has type {value.dtype}.")
        # Converted first: a number of float64 may be infinite in float32.
        if value.is_floating_point() and not bool(torch.isfinite(value.to(expected[name].dtype)).all()):
            raise InputError(f"{source} cannot be used: {name} contains NaN or infinite values.")
        if name.endswith("running_var") and bool((value < 0).any()):
            raise InputError(f"{source} cannot be used: {name} contains a negative variance.")
    module.load_state_dict(state, strict=True)


def _with_counts(state: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state with the counts of mini-batches of batch-norms: torch before 0.4.1 had none, others convert them."""
    result = dict(state)
    for name, value in expected.items():
        if name.endswith("num_batches_tracked"):
            count = result.get(name, torch.zeros_like(value))
            result[name] = count.nan_to_num().to(value.dtype) if count.is_floating_point() else count
    return result


def _build_named(name: str, state: Mapping[str, Tensor], source: Source) -> nn.Module:
    """The backbone that a file names. Libraries have networks of gigabytes: it must not be larger than the file."""
    size = sum(value.numel() for value in state.values())
    try:
        with backbones.at_most(size + _REMOVED):
            return backbones.build(name)
    except backbones.TooLarge:
        raise InputError(f"{source} does not fit its backbone {name}: that has more weights than the file.") from None


@usual_torch_state
def load_backbone(source: Source, *, backbone: str | nn.Module | None = None) -> nn.Module:
    """A trained backbone: in eval mode, frozen, with the metadata that is needed to normalise images for it.

    Args:
        source: a run folder, a Hugging Face folder or a `.safetensors` file that relatum wrote.
        backbone: the architecture, if the file does not name it or names a `module:function`, which is not imported
            unless you name it here. Weights are loaded into a module itself, not into a copy.

    Returns:
        The module, with `num_features`, `info` (backbone, mean, std, side, dataset, method, ...) and `transform`, which
        makes its input from a path, a Pillow image, an array or a tensor.
    """
    state, info = read_backbone(source)
    if backbone is None:
        module = _build_named(registry.backbone_from_file(info.get("backbone"), source), state, source)
    else:
        module = backbones.build(backbone)
    load_state(module, state, source)
    module.eval()
    for parameter in module.parameters():  # TorchScript has no `requires_grad_`
        parameter.requires_grad_(False)
    declared, stated = getattr(module, "num_features", None), info.get("num_features")
    if declared is None or declared != stated:  # a network may declare the size of an inner feature map
        size = backbones.feature_size(module, info.get("side", 32)) if declared is not None or not stated else stated
        with contextlib.suppress(AttributeError):  # a property
            setattr(module, "num_features", size)  # noqa: B010 (mypy takes attributes of modules for tensors)
    annotate(module, info)
    return module


def annotate(module: nn.Module, info: Mapping[str, Any]) -> None:
    """Give a module `info`, from which `embed` takes side and normalisation, and `transform`; its own are kept."""
    for name, value, kind in (("info", dict(info), Mapping), ("transform", Transform.of(info), Transform)):
        if isinstance(getattr(module, name, None), kind | None):
            setattr(module, name, value)
