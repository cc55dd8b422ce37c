"""`Run`: a run folder as the public functions accept and return it. torch is imported when a backbone is loaded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relatum import config
from relatum.data import sets
from relatum.errors import InputError
from relatum.runs.folder import RunFolder, read_recipe
from relatum.runs.metrics import MetricsTable, read_metrics
from relatum.system.files import expand_user
from relatum.system.progress import Display

if TYPE_CHECKING:
    from torch import nn

StrPath = str | os.PathLike[str]


@dataclass(frozen=True)
class Run:
    """A run folder; it can be passed wherever a path to a run is accepted."""

    path: Path
    architecture: nn.Module | None = field(default=None, repr=False, compare=False)
    """The custom backbone that the run was trained with, where this process trained it."""

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def recipe(self) -> config.Recipe:
        """The complete recipe."""
        return read_recipe(self.path)

    def backbone(self, backbone: str | nn.Module | None = None) -> nn.Module:
        """The trained backbone, frozen, in eval mode.

        Args:
            backbone: the architecture of a run with a custom backbone, as in `relatum.load_backbone`.
        """
        from relatum.runs.weights import load_backbone

        return load_backbone(self.path, backbone=architecture_of(self, backbone))

    @property
    def metrics(self) -> MetricsTable:
        """The training metrics: a list of one dict per logged step, with `column`, `to_numpy` and `to_pandas`."""
        return MetricsTable(read_metrics(RunFolder(self.path).metrics))


def architecture_of(run: Any, backbone: str | nn.Module | None) -> str | nn.Module | None:
    """The architecture to load a run's weights into: the user's `backbone`, or the module that was trained.

    A module is copied: loading weights into the user's own would overwrite and freeze it.
    """
    architecture = run.architecture if isinstance(run, Run) and backbone is None else backbone
    if architecture is None or isinstance(architecture, str):
        return architecture
    try:
        return deepcopy(architecture)
    except Exception as error:  # a lock or an open file in it
        raise InputError(
            f"the backbone cannot be copied ({error}); give its name, backbone='module:function'."
        ) from None


def note_unfinished(run: Any, verb: str, *, show: bool = True) -> None:
    """Print that the newest checkpoint is used, if a run is not finished. Refuses what is neither path nor module."""
    if not isinstance(run, str | os.PathLike):
        if not hasattr(run, "state_dict"):
            raise InputError(f"give a run folder, a weights file or a module, not {type(run).__name__}.")
        return
    folder = RunFolder(run)
    if show and folder.exists() and not folder.finished():
        step = folder.read_record().get("steps")  # not known before the first checkpoint
        where = f" (step {step})" if step is not None else ""
        Display().warn(f"{folder.path} is not finished: its newest checkpoint{where} is {verb}.")


def data_name(data: StrPath) -> str:
    """A dataset's name as it is; a folder as an absolute path, so that a resume finds it from anywhere."""
    if not isinstance(data, str | os.PathLike):
        raise InputError(f"data is the name of a dataset or a folder of images, not {type(data).__name__}.")
    name = os.fspath(data)
    if sets.is_dataset(data) or not name:
        return name
    try:
        path = Path(name) if Path(name).exists() else expand_user(name)
        return str(path.resolve()) if path.exists() else name
    except OSError:  # too long for a name: `find_folder` says so
        return name


def as_list(values: Any) -> list[Any]:
    """A list of values; a single string, path or number becomes a list of one."""
    if isinstance(values, str | os.PathLike) or not isinstance(values, Sequence):
        return [values]
    return list(values)


def optional_path(path: StrPath | None) -> Path | None:
    """A path as `Path`, or None."""
    return None if path is None else Path(path)
