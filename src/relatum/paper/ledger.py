"""The ledger: one JSON per finished run, so that tables can be rendered, and runs repeated, without the run folders.

An entry holds the run's recipe, the commands that made it, its learning curve (thinned), its result files, seconds,
machine and commit. Entries are matched to planned runs by what decides the weights (the recipe), never by a file's
name.
"""

from __future__ import annotations

import contextlib
import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from relatum import config
from relatum.errors import InputError
from relatum.paper.grid import Evaluation, Pretraining
from relatum.system.files import write_json, write_text

CURVE_POINTS = 200
_SMALL = 1_000_000  # bytes of weights that are kept beside an entry: Conv-4 has 100 kB, ResNet-32 1.9 MB

_PROVENANCE = ("version", "commit", "machine", "threads", "versions")

# What decides the weights. Where and how fast a run was made, and how often it was saved or logged, does not.
_DECISIVE_TABLES = ("views", "objective", "train")
_DECISIVE = (
    *("method", "preset", "seed", "init", "backbone.name", "run.precision"),
    *("data.name", "data.split", "data.side", "data.mean", "data.std", "data.pad"),
    *("data.labels", "data.val_fraction", "data.limit_train"),
)
_NAMED = ("method", "seed", "backbone.name")  # what every recipe says; keys of later versions may be absent


def collect(run_dir: str | Path, commands: Sequence[str] = ()) -> dict[str, Any]:
    """One ledger entry from a finished run folder.

    Args:
        run_dir: a run folder; its training must have ended.
        commands: the commands that made it, where they are known; else one that repeats it from its recipe.
    """
    run = Path(run_dir)
    if not (run / "backbone.safetensors").exists():
        raise InputError(f"{run} holds no finished run: only runs that ended belong in the ledger.")
    recipe = config.read_toml(run / "recipe.toml")
    results = [read_json(p) for p in sorted((run / "evaluations").glob("*.json"))]
    found = [r for r in results if r is not None]
    record = read_json(run / "run.json") or {}
    metrics = _metrics(run / "metrics.jsonl")
    recipe_command = f"relatum pretrain {recipe.get('data', {}).get('name')} --recipe recipe.toml"
    return {
        "id": run.name,
        "method": recipe.get("method"),
        "seed": recipe.get("seed"),
        **{key: record.get(key) or next((r[key] for r in found if r.get(key)), None) for key in _PROVENANCE},
        "started": record.get("started"),
        "seconds": record.get("seconds"),
        "commands": list(commands) or [recipe_command],
        "recipe": recipe,
        "curve": thin(metrics),
        "evaluations": found,
    }


def _metrics(path: Path) -> list[dict[str, Any]]:
    rows = []
    with contextlib.suppress(OSError):
        for line in path.read_text("utf-8").splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                rows.append(json.loads(line))
    return [_plain(row) for row in rows if isinstance(row, dict)]


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row without what JSON does not know (a loss that is not a number is None) and with short numbers."""
    return {k: (float(f"{v:.6g}") if math.isfinite(v) else None) if isinstance(v, float) else v for k, v in row.items()}


def thin(rows: Sequence[Mapping[str, Any]], most: int = CURVE_POINTS) -> list[dict[str, Any]]:
    """At most `most` rows, evenly spread, the first and the last among them."""
    if len(rows) <= most:
        return [dict(r) for r in rows]
    return [dict(rows[round(i * (len(rows) - 1) / (most - 1))]) for i in range(most)]


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object, or None where there is none to read (a file that is missing or half written)."""
    with contextlib.suppress(OSError, ValueError):
        document = json.loads(path.read_text("utf-8"))
        return document if isinstance(document, dict) else None
    return None


# -------------------------------------------------------------------------------------------------------------- entries


@dataclass(frozen=True)
class Entry:
    """A ledger entry and the file it was read from."""

    path: Path
    document: Mapping[str, Any]

    @property
    def backbone(self) -> Path | None:
        """Weights kept beside the entry, `NAME.safetensors`, if there are any."""
        path = self.path.with_suffix(".safetensors")
        return path if path.exists() else None

    @cached_property
    def decisive(self) -> dict[str, Any] | None:
        """All of its recipe that decides the weights; None where that is no recipe of a run."""
        flat = config.flatten(self.document.get("recipe", {}))
        if not flat.keys() >= set(_NAMED):
            return None
        try:
            return _decisive(config.Recipe.from_values(flat))
        except InputError:
            return None

    def matches(self, run: Pretraining) -> bool:
        """Whether this entry is of that run: all that decides the weights agrees."""
        ours, wanted = self.decisive, _planned(run)
        if ours is None:
            return False
        if run.method == "random":  # weights of a seed and a backbone, whatever the data
            return all(ours[key] == wanted[key] for key in (*_NAMED, "init"))
        return all(_same(ours.get(key), wanted.get(key)) for key in ours.keys() | wanted.keys())

    def result(self, evaluation: Evaluation) -> dict[str, Any] | None:
        """The result of that evaluation of this run, if it is here."""
        return next((dict(r) for r in self.document.get("evaluations", ()) if is_result(r, evaluation)), None)


def _decisive(recipe: config.Recipe) -> dict[str, Any]:
    flat = config.flatten(recipe.tables())
    return {k: v for k, v in flat.items() if k in _DECISIVE or k.partition(".")[0] in _DECISIVE_TABLES}


@cache
def _planned(run: Pretraining) -> dict[str, Any]:
    return _decisive(run.recipe())


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, int | float) and isinstance(b, int | float):
        return math.isclose(a, b, rel_tol=1e-9)
    return bool(a == b)


def is_result(document: Mapping[str, Any], evaluation: Evaluation) -> bool:
    """Whether a result file's content is of that evaluation: of 100 epochs and not of 20, by Adam and not by L-BFGS."""
    settings = document.get("settings")
    settings = settings if isinstance(settings, Mapping) else {}
    return (
        document.get("protocol") == evaluation.protocol
        and document.get("dataset") == evaluation.dataset
        and document.get("split") == evaluation.split
        and document.get("tag", "") == evaluation.tag
        and all(_agrees(settings, key, value) for key, value in evaluation.settings.items())
    )


def _agrees(settings: Mapping[str, Any], key: str, wanted: Any) -> bool:
    points = settings.get("n_points")
    if key == "perplexity" and isinstance(points, int):
        wanted = min(wanted, (points - 1) / 3)  # t-SNE reduces it for few points, and says what it used
    return _same(settings.get(key), wanted)


def read(folder: str | Path) -> list[Entry]:
    """All entries in a folder of the ledger, sub-folders too; other JSON files are passed over."""
    entries = []
    for path in sorted(Path(folder).rglob("*.json")):
        document = read_json(path)
        if document is not None and isinstance(document.get("recipe"), dict) and "evaluations" in document:
            entries.append(Entry(path, document))
    return entries


def write(folder: str | Path, entry: Mapping[str, Any]) -> Path:
    """Write an entry as `FOLDER/ID.json`."""
    path = Path(folder) / f"{entry['id']}.json"
    write_json(path, entry)
    return path


def keep_weights(run_dir: str | Path, path: Path) -> None:
    """Keep a run's weights beside its entry if they are small, so that anyone can evaluate them again."""
    weights = Path(run_dir) / "backbone.safetensors"
    if weights.stat().st_size <= _SMALL:
        shutil.copyfile(weights, path.with_suffix(".part"))
        path.with_suffix(".part").replace(path.with_suffix(".safetensors"))


def merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """An entry of weights that were kept, with results that were added since: training is the old entry's."""
    results = {(r.get("protocol"), r.get("dataset"), r.get("split"), r.get("tag", "")): r for r in old["evaluations"]}
    results |= {(r.get("protocol"), r.get("dataset"), r.get("split"), r.get("tag", "")): r for r in new["evaluations"]}
    commands = dict.fromkeys([*old.get("commands", ()), *new["commands"]])
    return {**new, **old, "commands": list(commands), "evaluations": list(results.values())}


def restore(entry: Entry, run_dir: str | Path) -> bool:
    """Make a run folder that can be evaluated from an entry whose weights were kept; False where they were not."""
    import tomli_w

    if entry.backbone is None:
        return False
    run = Path(run_dir)
    write_text(run / "recipe.toml", tomli_w.dumps(entry.document["recipe"]))
    shutil.copyfile(entry.backbone, run / ".backbone.part")
    (run / ".backbone.part").replace(run / "backbone.safetensors")
    return True


def unpack(path: Path, into: Path = Path("runs")) -> Path:
    """A run folder that can be evaluated, from an entry `NAME.json` or the weights `NAME.safetensors` beside it."""
    document = read_json(path.with_suffix(".json"))
    if document is None or not isinstance(document.get("recipe"), dict):
        raise InputError(f"{path} is no run; `relatum import {path} --out RUN` makes one of weights.")
    entry = Entry(path.with_suffix(".json"), document)
    if entry.backbone is None and (into / path.stem / "backbone.safetensors").exists():
        return into / path.stem  # they were made again, as the error below says
    if entry.backbone is None:
        made = next(iter(document.get("commands", ())), "its command")
        raise InputError(f"{path} keeps no weights; make them again: {made}")
    folder, kept = into / path.stem, into / path.stem / "backbone.safetensors"
    if kept.exists() and kept.read_bytes() != entry.backbone.read_bytes():
        raise InputError(f"{folder} holds other weights than {entry.backbone}; move it away first.")
    restore(entry, folder)
    return folder
