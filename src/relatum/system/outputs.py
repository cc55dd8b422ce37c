"""Recognises folders that relatum has written: they may be inside a folder of photos, and are not data.

`cd photos; relatum pretrain .` writes `photos/runs/…`. The pictures in there must not become training images.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

RECIPE = "recipe.toml"
METRICS = "metrics.jsonl"
RECORD = "run.json"
BACKBONE = "backbone.safetensors"
CHECKPOINTS = "checkpoints"
ARTIFACTS = "artifacts"
EVALUATIONS = "evaluations"
FEATURES = "features"
INDEX = "index"
FINETUNED = "finetuned"
TENSORBOARD = "tensorboard"
RUN_FOLDERS = (CHECKPOINTS, ARTIFACTS, EVALUATIONS, FEATURES, INDEX, FINETUNED, TENSORBOARD)
MARKER = ".relatum-output"  # an empty file in a folder of results that is not a run, such as `reproduce --out`


def mark_output(folder: Path) -> None:
    """Mark a folder of results, so that it is never read as data. Creates the folder if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).touch()


def is_output(names: Collection[str]) -> bool:
    """Whether the folder with these entries is a run folder, or is marked as results.

    A recipe alone is not enough: other programs may write a `recipe.toml` too.
    """
    if MARKER in names:
        return True
    return RECIPE in names and any(name in names for name in (RECORD, METRICS, CHECKPOINTS, BACKBONE))


def only_outputs(folder: Path) -> bool:
    """Whether a folder is an output, or contains only outputs (as `runs/` does)."""
    try:
        if is_output(_names(folder)):
            return True
        entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
        return bool(entries) and all(entry.is_dir() and is_output(_names(entry)) for entry in entries)
    except OSError:
        return False


def _names(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()]
