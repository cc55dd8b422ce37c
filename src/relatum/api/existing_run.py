"""Decides what `pretrain` does with a run folder: start, resume, replace, or leave a finished run as it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from relatum import config
from relatum.errors import InputError
from relatum.runs import names
from relatum.runs.folder import RunFolder
from relatum.system.launcher import Place
from relatum.system.progress import Display

if TYPE_CHECKING:  # imports torch
    from relatum.training.resume import Start


@dataclass(frozen=True)
class Plan:
    """The decision of the first process, after reading the run folder.

    Attributes:
        recipe: the recipe of the run to resume; None for a new run.
        start: the checkpoint to continue from, or None.
        finished: whether there is nothing to do.
        replace: whether a run in the folder is replaced.
    """

    recipe: config.Recipe | None = None
    start: Start | None = None
    finished: bool = False
    replace: bool = False


def make_plan(
    folder: RunFolder, draft: config.Draft, place: Place, display: Display, *, resume: bool, overwrite: bool
) -> Plan:
    """Decide whether to start, to resume or to replace a run. A launcher's restart resumes the run that it started."""
    exists = _holds_run(folder)
    if not exists and not draft.get("data.name"):
        raise InputError(f"there is no run at {folder.path} to resume; check --out, or give data to start one.")
    restarted = place.restarts > 0 and bool(place.token) and folder.read_record().get("launch") == place.token
    _check_folder(folder, resume=resume or restarted, overwrite=overwrite)
    if not exists or (overwrite and not restarted):
        return Plan(replace=exists)
    if _is_finished(folder, display):
        _warn_of_ignored_settings(folder, draft, display)
        return Plan(finished=True)
    from relatum.training.resume import open_run

    return Plan(*open_run(folder, display))


def refuse_data_folder(folder: RunFolder, data: str | None) -> None:
    """Refuse to write a new run among images whose sub-folders have the names of ours: they would no longer be read."""
    if not data or not Path(data).is_absolute() or folder.exists() or folder.path.resolve() != Path(data):
        return
    taken = next((name for name in names.FOLDERS if (folder.path / name).exists()), None)
    if taken is not None:
        raise InputError(
            f"{folder.path} is the folder of images itself, and its sub-folder {taken} has a name that runs use: "
            "choose another --out."
        )


def _holds_run(folder: RunFolder) -> bool:
    return folder.exists() or folder.has_checkpoints()


def _check_folder(folder: RunFolder, *, resume: bool, overwrite: bool) -> None:
    """Refuse a folder that must not be trained in or replaced."""
    if not _holds_run(folder) or resume:
        return
    if not folder.is_run():
        name = (folder.recipe if folder.exists() else folder.checkpoints).name
        raise InputError(
            f"{folder.path} contains {name}, which relatum did not write or an incomplete run left behind. "
            "Nothing was overwritten: choose another --out, or remove it."
        )
    if not overwrite:
        raise InputError(f"{folder.path} already contains a run: --resume continues it, --overwrite replaces it.")


def _warn_of_ignored_settings(folder: RunFolder, draft: config.Draft, display: Display) -> None:
    """Warn about requested settings that differ from those of a finished run, which is left as it is."""
    try:
        have = config.flatten(folder.read_recipe().tables())
    except InputError as error:
        display.warn(f"{error}")
        return
    requested = config.flatten(draft.request.tables())  # typed values; `--set` gives strings
    keys = [key for key in sorted(draft.explicit) if not key.startswith(("data.name", "run."))]
    ignored = [
        f"{key} = {requested.get(key)} (it has {have.get(key, 'no such setting')})"
        for key in keys
        if requested.get(key) not in ("auto", have.get(key))
    ]
    if ignored:
        display.warn(f"{', '.join(ignored)}: not applied. A new run can start from these weights: --init {folder.path}")


def _is_finished(folder: RunFolder, display: Display) -> bool:
    """Whether nothing is left to do. Damaged weights are written again where there is a checkpoint."""
    record = folder.read_record()
    if not folder.finished() or record.get("classifier_score") == "pending":
        return False
    from relatum.runs.weights import load_weights

    try:
        for path in (folder.backbone, folder.relation):
            if path.exists():
                load_weights(path)
    except InputError as error:
        if not folder.has_checkpoints():
            raise
        display.warn(f"{error}")
        return False
    if record.get("status") in ("running", "failed", "interrupted"):  # killed after its weights were written
        folder.update_record(status="finished")
    return True
