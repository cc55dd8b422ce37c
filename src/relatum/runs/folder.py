"""The run folder: the paths of its files, its lock, its recipe and its record (`run.json`). No torch here."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from relatum import config
from relatum.errors import InputError
from relatum.runs import names
from relatum.system.files import read_json, write_json, write_text
from relatum.system.locks import Owner, lock_folder, remove_if_empty


class RunFolder:
    """Paths and small files of one run.

    Args:
        path: the folder; it need not exist.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.recipe = self.path / names.RECIPE
        self.metrics = self.path / names.METRICS
        self.record = self.path / names.RECORD
        self.backbone = self.path / names.BACKBONE
        self.relation = self.path / names.RELATION
        self.report = self.path / names.REPORT
        self.held_out = self.path / names.HELD_OUT
        self.explore_page = self.path / names.EXPLORE
        self.checkpoints = self.path / names.CHECKPOINTS
        self.last = self.checkpoints / names.LAST_CHECKPOINT
        self.features = self.path / names.FEATURES
        self.index = self.path / names.INDEX

    def exists(self) -> bool:
        """Whether a run was started here."""
        return self.recipe.exists()

    def finished(self) -> bool:
        """Whether its backbone was written, which is the last step of training."""
        return self.backbone.exists()

    def clear(self) -> None:
        """Remove the files of the run; any other files in the folder are kept."""
        for name in names.FILES:
            (self.path / name).unlink(missing_ok=True)
        for name in names.FOLDERS:
            shutil.rmtree(self.path / name, ignore_errors=True)

    # ---------------------------------------------------------------------------------------------- paths by their stem

    def milestone(self, percent: int) -> Path:
        """The checkpoint kept after `percent` of the training."""
        return self.checkpoints / names.milestone(percent)

    def milestones(self) -> list[Path]:
        """The milestone checkpoints, latest first."""
        return sorted(self.checkpoints.glob(names.MILESTONES), reverse=True)

    def artifact(self, stem: str, ending: str = names.ARTIFACT_ENDING) -> Path:
        """RUN/artifacts/STEM.npz, or a file with another ending."""
        return self.path / names.ARTIFACTS / f"{stem}{ending}"

    def artifacts(self, protocol: str) -> list[Path]:
        """The artifacts of a protocol (`tsne`) or of training (`views`), sorted by name."""
        folder, ending = self.path / names.ARTIFACTS, names.ARTIFACT_ENDING
        paths = {*folder.glob(f"{protocol}{ending}"), *folder.glob(f"{protocol}-*{ending}")}
        return sorted(path for path in paths if not path.stem.endswith(names.MATRICES))

    def result(self, stem: str) -> Path:
        """RUN/evaluations/STEM.json."""
        return self.path / names.EVALUATIONS / f"{stem}{names.RESULT_ENDING}"

    def results(self) -> list[Path]:
        """All result files, sorted by name."""
        return sorted((self.path / names.EVALUATIONS).glob(f"*{names.RESULT_ENDING}"))

    def finetuned(self, stem: str) -> Path:
        """RUN/finetuned/STEM.safetensors."""
        return self.path / names.FINETUNED / f"{stem}{names.WEIGHTS_ENDING}"

    # ------------------------------------------------------------------------------------------------------------- lock

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Let one process at a time train here; a second process gets an `InputError`."""

        def refuse(owner: Owner | None) -> None:
            raise InputError(f"another process is training in {self.path}{f' ({owner})' * (owner is not None)}.")

        with lock_folder(self.path, on_busy=refuse):
            try:
                yield
            finally:
                remove_if_empty(self.path)  # bad input ended the run before it began

    # ------------------------------------------------------------------------------------------------ recipe and record

    def write_recipe(self, recipe: config.Recipe) -> None:
        """Write recipe.toml."""
        write_text(self.recipe, recipe.to_toml())

    def read_recipe(self) -> config.Recipe:
        """The complete recipe. Its method may be a custom one that is not registered in this process."""
        if not self.exists():
            raise InputError(f"no run at {self.path}; name the folder that `relatum pretrain --out` wrote.")
        return config.Recipe.from_values(config.flatten(config.read_toml(self.recipe)), finished=True)

    def update_record(self, **changes: Any) -> None:
        """Change some keys of run.json and keep the others."""
        write_json(self.record, {**self.read_record(), **changes})

    def read_record(self) -> dict[str, Any]:
        """The content of run.json; empty if it is missing or damaged."""
        return read_json(self.record) or {}


def read_recipe(run: str | os.PathLike[str]) -> config.Recipe:
    """The complete recipe of a run folder."""
    return RunFolder(run).read_recipe()
