"""Checkpoints: written atomically with a checksum inside, loaded without running code.

`last.ckpt` holds everything that an exact resume needs: weights, optimiser state and step. There is no random state in
it, because every random draw is a function of seed, epoch and step (see `relatum.rng`). `previous.ckpt` is the one
before it. A damaged file is never used: the newest good one is, with a warning.
"""

from __future__ import annotations

import io
import os
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from relatum.errors import InputError
from relatum.runs.checkpoint_bounds import check_content, check_file
from relatum.runs.digest import KEY, digest
from relatum.runs.folder import RunFolder
from relatum.system.files import write_bytes

State = dict[str, Any]
_FORMAT = "format"
_VERSION = 2  # checkpoints with a digest; version 1 had neither
_NEEDED = ("objective", "optimizer", "step", "recipe", "info")


def save(path: Path, state: State) -> None:
    """Write a checkpoint atomically, with its digest."""
    state = {**state, _FORMAT: _VERSION}
    buffer = io.BytesIO()  # torch reports a full disk as an internal error, Python as what it is
    torch.save({**state, KEY: digest(state)}, buffer)
    write_bytes(path, buffer.getbuffer())


def save_last(folder: RunFolder, state: State, *, keep: bool) -> None:
    """Write `last.ckpt`.

    Args:
        folder: the run folder.
        state: the state of the run.
        keep: keep the present `last.ckpt`, which is known to be good, as `previous.ckpt`.
    """
    if keep and folder.last.exists():
        _copy_name(folder.last, folder.previous)
    save(folder.last, state)


def _copy_name(source: Path, target: Path) -> None:
    """Give a file a second name, so that at no moment either is missing."""
    temporary = target.with_name(f".{target.name}.link.part")
    try:
        temporary.unlink(missing_ok=True)
        os.link(source, temporary)
        temporary.replace(target)
        temporary.unlink(missing_ok=True)  # renaming does nothing where both already name one file
    except OSError:  # a file system without links
        source.replace(target)


def load(path: Path) -> State:
    """Read a checkpoint without running any code in it, and check its digest.

    Raises:
        InputError: the file is missing, damaged, or contains more than tensors and plain values.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's advice on other pickles; the errors below are enough
            check_file(path)
            state = torch.load(path, map_location="cpu", weights_only=True)
            check_content(state, path.stat().st_size)
    except FileNotFoundError:
        raise InputError(f"no checkpoint at {path}.") from None
    except pickle.UnpicklingError:
        raise InputError(
            f"{path} is not a safe checkpoint: it is damaged or contains code, which is never run. Nothing was loaded."
        ) from None
    except Exception as error:  # torch may raise any exception for a damaged file
        reason = (str(error).splitlines() or [""])[0] or type(error).__name__
        raise InputError(f"{path} is not a readable checkpoint: {reason}") from None
    if not isinstance(state, dict):
        raise InputError(f"{path} is not a checkpoint of relatum: it contains a {type(state).__name__}.")
    if KEY in state or _FORMAT in state:
        state = _check_digest(state, path)
    return state


def _check_digest(state: State, path: Path) -> State:
    """The state without its digest, which must be right. Checkpoints without one are from before version 2."""
    state = dict(state)
    stored = state.pop(KEY, None)
    if stored != digest(state) or state.pop(_FORMAT, None) != _VERSION:
        raise InputError(f"{path} is damaged: its contents do not match its checksum.")
    return state


def newest(run: str | os.PathLike[str], *, warn: Callable[[str], None] | None = None) -> tuple[Path, State] | None:
    """The newest good checkpoint of a run, or None if there is no checkpoint yet.

    Args:
        run: the run folder.
        warn: called with a sentence for each damaged file that was passed over.

    Raises:
        InputError: there are checkpoints, but none of them is good.
    """
    folder = RunFolder(run)
    errors: list[InputError] = []
    good: list[tuple[Path, State]] = []
    others = [path for path in (folder.previous, *folder.milestones()) if path.exists()]
    for path in [folder.last, *others] if folder.last.exists() else others:
        try:
            good.append((path, load_state_of_run(path)))
        except InputError as error:
            errors.append(error)
        if good and good[0][0] == folder.last:
            break
    if errors and not good:
        raise errors[0]
    if not good:
        return None
    path, state = max(good, key=lambda item: int(item[1]["step"]))
    if errors and warn is not None:
        for passed_over in errors:
            warn(str(passed_over))
        warn(f"using {path} (step {state['step']:,}) instead.")
    return path, state


def load_state_of_run(path: Path) -> State:
    """Read a checkpoint of a run: `load`, and what a resume needs must be there."""
    state = load(path)
    step = state.get("step")
    if any(key not in state for key in _NEEDED) or type(step) is not int or step < 0:
        raise InputError(f"{path} is not a checkpoint of a run: it lacks {', '.join(_NEEDED)} or its step is wrong.")
    return state
