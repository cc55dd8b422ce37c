"""The ledger: one JSON file per finished run, so that tables can be rendered and runs repeated without run folders.

An entry contains the run's recipe, the commands that produced it, its learning curve (thinned), its result files,
seconds, machine and commit. Small weights are kept beside it, as `ID.safetensors`. No torch here.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import tomli_w

from relatum import config
from relatum.errors import InputError
from relatum.runs import names
from relatum.runs.folder import RunFolder
from relatum.runs.metrics import read_metrics
from relatum.runs.results import is_preliminary
from relatum.system.files import has_checksum, read_json, with_checksum, write_atomically, write_json
from relatum.system.locks import is_folder_locked
from relatum.system.progress import Display

CURVE_POINTS = 200
ENDING = ".json"
_SMALL = 1_000_000  # bytes of weights that are kept beside an entry: Conv-4 has 100 kB, ResNet-32 1.9 MB

_PROVENANCE = ("version", "commit", "machine", "threads", "versions")

# The recipe keys that decide the weights. The machine, and how often a run was saved or logged, do not.
_DECISIVE_TABLES = ("views", "objective", "train")
_DECISIVE = (
    *("method", "preset", "seed", "init", "backbone.name", "run.precision"),
    *("data.name", "data.split", "data.side", "data.mean", "data.std", "data.pad"),
    *("data.labels", "data.val_fraction", "data.limit_train"),
)
REQUIRED_KEYS = ("method", "seed", "backbone.name")  # every recipe has these; keys of later versions may be absent


# -------------------------------------------------------------------------------------------------- from a run folder


def collect(run: str | Path, commands: Sequence[str] = ()) -> dict[str, Any]:
    """One ledger entry from a finished run folder.

    Args:
        run: a run folder whose training has ended.
        commands: the commands that produced it, if they are known; by default one that repeats it from its recipe.
    """
    folder = RunFolder(run)
    if not folder.finished():
        raise InputError(f"{folder.path} contains no finished run; only finished runs belong in the ledger.")
    if folder.recipe_changed():
        raise InputError(f"{folder.recipe} was changed after the run started; it does not belong in the ledger.")
    recipe = config.read_toml(folder.recipe)
    results = [result for path in folder.results() if (result := _read_result(path)) is not None]
    record = {} if folder.record_damaged() else folder.read_record()
    recipe_command = f"relatum pretrain {recipe.get('data', {}).get('name')} --recipe {names.RECIPE}"
    return {
        "id": folder.path.name,
        "method": recipe.get("method"),
        "seed": recipe.get("seed"),
        **{key: record.get(key) or next((r[key] for r in results if r.get(key)), None) for key in _PROVENANCE},
        "started": record.get("started"),
        "seconds": record.get("seconds"),
        "commands": list(commands) or [recipe_command],
        "recipe": recipe,
        "curve": _thin([_plain(row) for row in read_metrics(folder.metrics)]),
        "evaluations": results,
    }


def _read_result(path: Path) -> dict[str, Any] | None:
    document = read_json(path)
    if document is None:
        Display().warn(f"{path} is damaged and left out of the ledger; evaluate the run again.")
    elif is_preliminary(document):
        Display().warn(f"{path} is of a checkpoint, not of the finished run, and left out; evaluate the run again.")
        return None
    return document


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with numbers of six digits, and None for those that JSON cannot express (NaN, infinity)."""
    return {k: (float(f"{v:.6g}") if math.isfinite(v) else None) if isinstance(v, float) else v for k, v in row.items()}


def _thin(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most `CURVE_POINTS` rows, evenly spaced, including the first and the last."""
    if len(rows) <= CURVE_POINTS:
        return rows
    return [rows[round(i * (len(rows) - 1) / (CURVE_POINTS - 1))] for i in range(CURVE_POINTS)]


# -------------------------------------------------------------------------------------------------------------- entries


@dataclass(frozen=True)
class Entry:
    """A ledger entry and the file it was read from."""

    path: Path
    document: Mapping[str, Any]

    @property
    def backbone(self) -> Path | None:
        """The weights kept beside the entry, `ID.safetensors`, or None."""
        path = self.path.with_suffix(names.WEIGHTS_ENDING)
        return path if path.exists() else None

    @property
    def results(self) -> Sequence[Mapping[str, Any]]:
        """The contents of the run's result files."""
        return self.document.get("evaluations", ())

    @cached_property
    def decisive(self) -> dict[str, Any] | None:
        """The recipe keys that decide the weights; None if the recipe is not a valid one."""
        flat = config.flatten(self.document.get("recipe", {}))
        if not flat.keys() >= set(REQUIRED_KEYS):
            return None
        if "train.sync" not in flat and flat.get("run.devices", 1) != 1:
            flat["train.sync"] = "local"  # before that key, each process trained on its own part of a mini-batch
        try:
            return decisive_values(config.Recipe.from_values(flat))
        except InputError:
            return None


def decisive_values(recipe: config.Recipe) -> dict[str, Any]:
    """The keys of a recipe that decide the weights, with their values."""
    flat = config.flatten(recipe.tables())
    return {k: v for k, v in flat.items() if k in _DECISIVE or k.partition(".")[0] in _DECISIVE_TABLES}


def read(folder: str | Path) -> list[Entry]:
    """All entries in a folder and its sub-folders; other JSON files are ignored."""
    documents = ((path, read_json(path)) for path in sorted(Path(folder).rglob(f"*{ENDING}")))
    return [Entry(path, document) for path, document in documents if document is not None and _is_entry(document)]


def damaged(folder: str | Path) -> list[Path]:
    """The files in a folder that are entries, but not as they were written: `read` leaves them out."""
    paths = sorted(Path(folder).rglob(f"*{ENDING}"))
    return [path for path in paths if has_checksum(path) and read_json(path) is None]


def _is_entry(document: Mapping[str, Any]) -> bool:
    return isinstance(document.get("recipe"), dict) and "evaluations" in document


def write(folder: str | Path, entry: Mapping[str, Any]) -> Path:
    """Write an entry as `FOLDER/ID.json`."""
    path = Path(folder) / f"{entry['id']}{ENDING}"
    write_json(path, with_checksum(entry))
    return path


def keep_weights(run: str | Path, path: Path) -> None:
    """Copy a run's weights beside its entry if they are small, so that they can be evaluated again."""
    weights = RunFolder(run).backbone
    if weights.stat().st_size <= _SMALL:
        _copy(weights, path.with_suffix(names.WEIGHTS_ENDING))


def merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """An old entry with the results that were added since; what it records about training is kept."""

    def by_name(entry: Mapping[str, Any]) -> dict[Any, Any]:
        return {
            (r.get("protocol"), r.get("dataset"), r.get("split"), r.get("tag", "")): r for r in entry["evaluations"]
        }

    results = by_name(old) | by_name(new)
    commands = dict.fromkeys([*old.get("commands", ()), *new["commands"]])
    return {**new, **old, "commands": list(commands), "evaluations": list(results.values())}


# ---------------------------------------------------------------------------------------------------- to a run folder


def restore(entry: Entry, run: str | Path) -> bool:
    """Create a run folder that can be evaluated from an entry; False if the entry has no weights."""
    if entry.backbone is None:
        return False
    folder = RunFolder(run)
    try:
        recipe = tomli_w.dumps(entry.document["recipe"])
    except (TypeError, ValueError, RecursionError, AttributeError) as error:  # TOML has no null, for example
        raise InputError(f"the recipe in {entry.path} cannot be used: {error}") from None
    folder.write_recipe(recipe)
    _copy(entry.backbone, folder.backbone)
    return True


def unpack(path: Path, into: Path = Path("runs")) -> Path:
    """Create a run folder that can be evaluated.

    Args:
        path: an entry `ID.json`, or the weights `ID.safetensors` beside it.
        into: the folder of the run folder `ID`.
    """
    document = read_json(path.with_suffix(ENDING))
    if document is None or not isinstance(document.get("recipe"), dict):
        raise InputError(
            f"{path} is not a run; `relatum import {path} --backbone NAME --out RUN` creates one from weights."
        )
    entry, folder = Entry(path.with_suffix(ENDING), document), RunFolder(into / path.stem)
    if entry.backbone is None:
        if folder.finished():
            return folder.path  # trained again, as the error below suggests
        commands = document.get("commands")
        command = commands[0] if isinstance(commands, list) and commands else "its command"
        raise InputError(f"{path} keeps no weights; train them again: {command}")
    if folder.finished() and folder.backbone.read_bytes() != entry.backbone.read_bytes():
        raise InputError(f"{folder.path} contains other weights than {entry.backbone}; move it away first.")
    if not folder.finished() and (folder.has_checkpoints() or is_folder_locked(folder.path)):
        raise InputError(f"{folder.path} contains a run that is not finished; finish it, or move it away first.")
    restore(entry, folder.path)
    return folder.path


def is_entry_file(path: Path) -> bool:
    """Whether a path is the file of an entry or of the weights beside it, by its ending."""
    return path.suffix in (ENDING, names.WEIGHTS_ENDING) and path.is_file()


def _copy(source: Path, target: Path) -> None:
    write_atomically(target, lambda temporary: shutil.copyfile(source, temporary))
