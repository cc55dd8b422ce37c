"""`Run`: a run folder as the public functions accept and return it. torch is imported when a backbone is loaded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relatum import config, registry
from relatum.runs.folder import read_recipe

if TYPE_CHECKING:
    from torch import nn

StrPath = str | os.PathLike[str]


@dataclass(frozen=True)
class Run:
    """A run folder; it can be passed wherever a path to a run is accepted."""

    path: Path

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

        return load_backbone(self.path, backbone=backbone)


def data_name(data: StrPath) -> str:
    """A dataset's name as it is; a folder as an absolute path, so that a resume finds it from anywhere."""
    name = os.fspath(data)
    if name in registry.DATASETS or not Path(name).exists():
        return name
    return str(Path(name).resolve())


def as_list(values: Any) -> list[Any]:
    """A list of values; a single text, path or number counts as one value, not as its letters."""
    if isinstance(values, str | os.PathLike) or not isinstance(values, Sequence):
        return [values]
    return list(values)


def optional_path(path: StrPath | None) -> Path | None:
    """A path as `Path`, or None."""
    return None if path is None else Path(path)
