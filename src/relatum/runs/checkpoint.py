"""Checkpoints and weight files: atomic, strict, safe to open, rebuilt from the file alone.

`last.ckpt` holds all that exact resume needs: weights, optimiser, step. Random state is not there because there is none
(see `relatum.rng`). It loads with `torch.load(weights_only=True)`, so opening one runs no code.
"""

from __future__ import annotations

import json
import pickle
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from relatum import backbones
from relatum.errors import InputError
from relatum.system.files import write_atomically

BACKBONE, HEAD = "backbone.safetensors", "relation.safetensors"
State = dict[str, Any]


def save(path: Path, state: State) -> None:
    """Write a checkpoint atomically."""
    write_atomically(path, lambda p: torch.save(state, p))


def load(path: Path) -> State:
    """Read a checkpoint without running anything in it.

    Raises:
        InputError: the file is missing, damaged, or holds more than tensors and plain values.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's advice on other pickles; the error below says all
            state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise InputError(f"no checkpoint at {path}.") from None
    except pickle.UnpicklingError:
        raise InputError(
            f"{path} is not a safe checkpoint: it is damaged or holds code, which is never run. Nothing was loaded."
        ) from None
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, AttributeError, zipfile.BadZipFile) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{path} is not a readable checkpoint: {reason}") from None
    if not isinstance(state, dict):
        raise InputError(f"{path} is not a checkpoint of relatum: it holds a {type(state).__name__}.")
    return state


def newest(run: Path) -> tuple[Path, State] | None:
    """The newest good checkpoint of a run, or None where there is none yet.

    A damaged `last.ckpt` falls back to the milestones; if every file is bad, the first error is raised.
    """
    folder = run / "checkpoints"
    candidates = [folder / "last.ckpt"] if (folder / "last.ckpt").exists() else []
    candidates += sorted(folder.glob("milestone-*.ckpt"), reverse=True)
    failure: InputError | None = None
    for path in candidates:
        try:
            return path, load(path)
        except InputError as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return None


def save_weights(path: Path, state: Mapping[str, Tensor], info: Mapping[str, Any]) -> None:
    """Write weights as safetensors with one metadata key, `relatum` (several are written in random order)."""
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in state.items()}
    metadata = {"relatum": json.dumps(info, sort_keys=True)}
    write_atomically(path, lambda p: save_file(tensors, p, metadata=metadata))


def load_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Weights and their metadata from a safetensors file."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            return state, json.loads(metadata.get("relatum", "{}"))
    except FileNotFoundError:
        raise InputError(f"no weights at {path}.") from None
    except (SafetensorError, OSError, json.JSONDecodeError) as error:
        raise InputError(f"{path} is not a readable safetensors file: {error}") from None


def read_backbone(source: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Backbone weights and metadata from a run folder, a safetensors file or a checkpoint of relatum."""
    path = Path(source)
    if path.is_dir():
        if (path / BACKBONE).exists():
            return load_weights(path / BACKBONE)
        found = newest(path)
        if found is None:
            raise InputError(f"{path} holds no {BACKBONE} and no checkpoint; is it a run folder?")
        return backbone_state(found[1]["objective"]), found[1]["info"]
    if not path.exists():
        raise InputError(f"no run or weights at {path}.")
    if path.suffix == ".safetensors":
        return load_weights(path)
    state = load(path)
    if isinstance(state.get("objective"), dict):
        return backbone_state(state["objective"]), state["info"]
    weights = state.get("backbone", state)  # the authors' checkpoints keep the backbone under that name
    if not isinstance(weights, dict) or not all(isinstance(value, Tensor) for value in weights.values()):
        raise InputError(f"{path} holds no backbone weights.")
    return _plain_names(weights), {}


def _plain_names(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Names as the ecosystem's backbones have them: without a data-parallel prefix and without a classifier."""
    names = {name: name.removeprefix("module.") for name in weights}
    return {names[name]: value for name, value in weights.items() if not names[name].startswith("fc.")}


def backbone_state(objective: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The backbone's part of an objective's state."""
    prefix = "backbone."
    return {name[len(prefix) :]: value for name, value in objective.items() if name.startswith(prefix)}


def load_state(module: nn.Module, state: Mapping[str, Tensor], source: str | Path) -> None:
    """Load strictly; a mismatch is one line that names the first difference."""
    own = module.state_dict()
    missing, extra = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
    wrong = [n for n in own.keys() & state.keys() if own[n].shape != state[n].shape]
    if missing or extra or wrong:
        what = (
            f"lacks {missing[0]}" if missing else f"has an unknown {extra[0]}" if extra else f"has another {wrong[0]}"
        )
        raise InputError(
            f"{source} does not fit this backbone: it {what} ({len(missing) + len(extra) + len(wrong)} in all)."
        )
    module.load_state_dict(state, strict=True)


def load_backbone(source: str | Path, *, backbone: str | nn.Module | None = None) -> nn.Module:
    """A trained backbone: eval mode, frozen, and knowing how its images are normalised.

    Args:
        source: a run folder, or a `.safetensors` file that relatum wrote.
        backbone: the architecture, where the file does not name it.

    Returns:
        The module, with `num_features` and `info` (backbone, mean, std, side, dataset, method, ...).
    """
    state, info = read_backbone(source)
    architecture = backbone if backbone is not None else info.get("backbone")
    if architecture is None:
        raise InputError(f"{source} does not say which backbone it is; name it (backbone=..., --backbone ...).")
    module = backbones.build(architecture)
    load_state(module, state, source)
    module.eval().requires_grad_(False)
    if not hasattr(module, "num_features"):
        size = info.get("num_features") or backbones.feature_size(module, info.get("side", 32))
        setattr(module, "num_features", size)  # noqa: B010 (mypy takes attributes of modules for tensors)
    setattr(module, "info", info)  # noqa: B010
    return module
