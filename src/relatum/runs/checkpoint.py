"""Checkpoints: written atomically, loaded without running code.

`last.ckpt` holds everything that an exact resume needs: weights, optimiser state and step. There is no random state in
it, because every random draw is a function of seed, epoch and step (see `relatum.rng`).
"""

from __future__ import annotations

import os
import pickle
import warnings
from pathlib import Path
from typing import Any

import torch

from relatum.errors import InputError
from relatum.runs.folder import RunFolder
from relatum.system.files import write_atomically

State = dict[str, Any]


def save(path: Path, state: State) -> None:
    """Write a checkpoint atomically."""
    write_atomically(path, lambda p: torch.save(state, p))


def load(path: Path) -> State:
    """Read a checkpoint without running any code in it.

    Raises:
        InputError: the file is missing, damaged, or contains more than tensors and plain values.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's advice on other pickles; the errors below are enough
            state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise InputError(f"no checkpoint at {path}.") from None
    except pickle.UnpicklingError:
        raise InputError(
            f"{path} is not a safe checkpoint: it is damaged or contains code, which is never run. Nothing was loaded."
        ) from None
    except Exception as error:  # a damaged file may raise any exception
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{path} is not a readable checkpoint: {reason}") from None
    if not isinstance(state, dict):
        raise InputError(f"{path} is not a checkpoint of relatum: it contains a {type(state).__name__}.")
    return state


def newest(run: str | os.PathLike[str]) -> tuple[Path, State] | None:
    """The newest readable checkpoint of a run, or None if there is no checkpoint yet.

    If `last.ckpt` is damaged, the latest milestone is used. If all files are damaged, the first error is raised.
    """
    folder = RunFolder(run)
    paths = [folder.last] if folder.last.exists() else []
    first_error: InputError | None = None
    for path in [*paths, *folder.milestones()]:
        try:
            return path, load(path)
        except InputError as error:
            first_error = first_error or error
    if first_error is not None:
        raise first_error
    return None
