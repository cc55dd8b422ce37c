"""`python results/milestones.py RUN ...`: linear accuracy at 25, 50, 75 and 100 % of finished or unfinished runs.

Writes results/milestones/ID.json, which `headline.py` draws. A run keeps a checkpoint at each of them. Needs the
run folders and the datasets (`RELATUM_DATA`). Points that a file already contains are not computed again.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import relatum
from relatum.runs import provenance
from relatum.runs.checkpoint import load
from relatum.runs.folder import RunFolder, read_recipe
from relatum.system.files import read_json, with_checksum, write_json

FOLDER = Path(__file__).parent / "milestones"


def measure(run: Path) -> Path:
    """Evaluate the milestones of a run that were not evaluated yet."""
    recipe, path = read_recipe(run), FOLDER / f"{run.name}.json"
    points: dict[int, dict[str, Any]] = {point["step"]: point for point in (read_json(path) or {}).get("points", [])}
    for checkpoint in reversed(RunFolder(run).milestones()):
        step = int(load(checkpoint)["step"])
        if step in points:
            continue
        backbone = relatum.load_backbone(checkpoint)
        result = relatum.evaluate("linear", backbone, data=recipe.data.name, seed=1, progress=False)
        points[step] = {"step": step, "accuracy": result.accuracy}
        print(f"{run.name} step {step}: {result.accuracy:.2f}", flush=True)
    document = {
        "run": run.name,
        "method": recipe.method,
        "preset": recipe.preset,
        "views": recipe.views.number,
        "batch_size": recipe.train.batch_size,
        "epochs": recipe.train.epochs,
        "seed": recipe.seed,
        "protocol": "linear",
        "dataset": recipe.data.name,
        "split": "test",
        "points": [points[step] for step in sorted(points)],
        **{key: value for key, value in provenance.record().items() if key in ("version", "commit", "machine")},
    }
    write_json(path, with_checksum(document))
    return path


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(measure(Path(name)))
