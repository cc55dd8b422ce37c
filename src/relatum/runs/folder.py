"""The run folder: the paths of its files, its lock, its recipe and its record (`run.json`). No torch here."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from relatum import config
from relatum.errors import InputError
from relatum.runs import names
from relatum.system.files import (
    FULL,
    WriteError,
    has_checksum,
    overwrite_in_place,
    read_json,
    remove_stale,
    to_json,
    with_checksum,
    write_text,
)
from relatum.system.locks import Owner, lock_folder, remove_if_empty
from relatum.system.progress import Display
from relatum.system.untrusted import MAX_RECIPE, parse_toml, read_bounded

_REMOVED = ".removed-"  # folders on their way out
_CHECKSUM = "\n# A resume needs this file as the run wrote it. SHA-256 of the text above: "


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
        self.previous = self.checkpoints / names.PREVIOUS_CHECKPOINT
        self.features = self.path / names.FEATURES
        self.index = self.path / names.INDEX

    def exists(self) -> bool:
        """Whether a run was started here."""
        return self.recipe.exists()

    def finished(self) -> bool:
        """Whether its backbone was written, which is the last step of training."""
        return self.backbone.exists()

    def is_hub_folder(self) -> bool:
        """Whether `export --format huggingface` wrote this folder."""
        return not self.exists() and (self.path / names.HUB_WEIGHTS).exists()

    def keeps_results(self) -> bool:
        """Whether representations may be kept here: not in a file's place, nor in a folder that is uploaded."""
        return self.path.is_dir() and not self.is_hub_folder()

    def has_checkpoints(self) -> bool:
        """Whether there is a checkpoint, good or damaged."""
        return any(path.exists() for path in (self.last, self.previous, *self.milestones()))

    def is_run(self) -> bool:
        """Whether relatum wrote this folder: by its recipe, or by its record where the recipe is lost or damaged.

        Other programs write files of the same names, and those must not be deleted.
        """
        try:
            tables = parse_toml(read_bounded(self.recipe, MAX_RECIPE).decode("utf-8"))
        except (OSError, ValueError):
            tables = {}
        if {"method", "data", "backbone"} <= tables.keys():
            return True
        return {"status", "version"} <= self.read_record().keys()

    def clear(self) -> None:
        """Remove the files of the run; any other files in the folder, and in its sub-folders, are kept.

        A process that is killed in between leaves the old run, complete or to be trained again from its recipe: the
        checkpoints vanish at once, and the recipe last.
        """
        self.backbone.unlink(missing_ok=True)
        for name in names.FOLDERS:
            folder = self.path / name
            if folder.is_symlink():
                folder.unlink()
            elif folder.exists():
                ours = [entry for entry in folder.iterdir() if names.is_written(name, entry)]
                if len(ours) < len(list(folder.iterdir())):  # a folder of photographs may be called `index`, too
                    for entry in ours:
                        entry.unlink(missing_ok=True)
                    continue
                removed = Path(tempfile.mkdtemp(prefix=_REMOVED, dir=self.path))
                folder.replace(removed / name)
        for name in names.FILES:
            if name != names.RECIPE:
                (self.path / name).unlink(missing_ok=True)
        self._remove_litter()
        self.recipe.unlink(missing_ok=True)

    def _remove_litter(self) -> None:
        """Remove what killed processes left: temporary files, and folders that were being removed."""
        for folder in (self.path, *(self.path / name for name in names.FOLDERS)):
            if folder == self.path or not folder.is_symlink():  # elsewhere, other programs may have such files
                remove_stale(folder)
        for removed in self.path.glob(f"{_REMOVED}*"):
            shutil.rmtree(removed, ignore_errors=True)

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
            self._remove_litter()
            try:
                yield
            finally:
                remove_if_empty(self.path)  # bad input ended the run before it began

    def check_writable(self) -> None:
        """Refuse a run whose results could not be saved: on a read-only disk, or of another user."""
        try:
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except OSError as error:
            if error.errno not in FULL:
                raise InputError(
                    f"cannot write to {self.path}: {error.strerror}. Copy the run to a folder that can be written."
                ) from None

    # ------------------------------------------------------------------------------------------------ recipe and record

    def write_recipe(self, recipe: config.Recipe | str) -> None:
        """Write recipe.toml, from a recipe or its text, with a checksum of the text in a comment at its end."""
        text = recipe if isinstance(recipe, str) else recipe.to_toml()
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")
        write_text(self.recipe, f"{text}{_CHECKSUM}{_sha256(text)}\n")

    def recipe_changed(self) -> bool:
        """Whether recipe.toml was changed. Older versions, recognised by run.json, wrote no checksum."""
        try:
            text, mark, checksum = read_bounded(self.recipe, MAX_RECIPE).decode("utf-8").rpartition(_CHECKSUM)
        except (OSError, ValueError):
            return True
        if not mark:  # cut off, or never there
            return has_checksum(self.record)
        return _sha256(text) != checksum.strip()

    def read_recipe(self) -> config.Recipe:
        """The complete recipe. Its method may be a custom one that is not registered in this process."""
        if not self.exists():
            raise InputError(f"no run at {self.path}; give the folder that `relatum pretrain --out` created.")
        values = config.flatten(config.read_toml(self.recipe))
        if not values.get("data.name"):
            raise InputError(f"{self.recipe} is empty or damaged: it names no data.")
        return config.Recipe.from_values(values, finished=True)

    def warn_if_recipe_changed(self) -> None:
        """Warn that recipe.toml was changed: results use and record its present content."""
        if self.recipe_changed():
            Display().warn(f"{self.recipe} was changed after the run started: results rely on what it says now.")

    def update_record(self, **changes: Any) -> None:
        """Change some keys of run.json and keep the others."""
        text = to_json(with_checksum({**self.read_record(), **changes}))
        try:
            write_text(self.record, text)
        except WriteError as error:
            # The status of a run that a full disk stopped: there may be no room for a temporary file.
            if error.errno not in FULL or not self.record.exists() or not overwrite_in_place(self.record, text):
                raise

    def read_record(self) -> dict[str, Any]:
        """The content of run.json, as far as it can be read; empty if it is missing or damaged."""
        return read_json(self.record, verify=False) or {}

    def record_damaged(self) -> bool:
        """Whether run.json cannot be read, or is not as it was written."""
        return self.record.exists() and read_json(self.record) is None


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def read_recipe(run: str | os.PathLike[str]) -> config.Recipe:
    """The complete recipe of a run folder."""
    return RunFolder(run).read_recipe()
