"""`python results/speeds.py`: seconds per training step of the recipes that `headline.py` compares, on idle cores.

Each recipe trains 200 steps on CIFAR-10 with two threads, three times in turn, each time in a process of its own; the
median of the logged speeds counts. Writes results/speeds.json. Run it while nothing else runs. Needs the dataset
(`RELATUM_DATA`).
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from relatum.runs import provenance
from relatum.runs.folder import read_recipe
from relatum.system.files import with_checksum, write_json

PATH = Path(__file__).with_suffix(".json")
STEPS, ROUNDS, WARM = 200, 3, 5  # WARM: logged speeds at the start that are left out (compiling, first use of memory)
RECIPES = {
    "relational paper 32": ("--preset", "paper", "--views", "32"),
    "relational paper 4": ("--preset", "paper", "--views", "4"),
    "relational fast 8": ("--preset", "fast"),
    "simclr paper 2": ("--method", "simclr"),
    "simclr fast 2": ("--method", "simclr", "--preset", "fast"),
}


def train(out: Path, flags: tuple[str, ...]) -> list[float]:
    """Seconds per step, as logged by a run of its own process."""
    images = STEPS * (128 if "simclr" in flags else 64)
    command = [sys.executable, "-m", "relatum", "pretrain", "cifar10", *flags, "--out", str(out)]
    command += ["--epochs", "1", "--limit-train", str(images), "--threads", "2"]
    subprocess.run(command, check=True, capture_output=True)
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    recipe = read_recipe(out)
    views = recipe.views.number * recipe.train.batch_size
    return [views / row["views_per_second"] for row in rows[WARM:]]


def main() -> None:
    """Measure every recipe and write the file."""
    samples: dict[str, list[float]] = {name: [] for name in RECIPES}
    with tempfile.TemporaryDirectory() as place:
        for number in range(ROUNDS):
            for name, flags in RECIPES.items():
                samples[name] += train(Path(place) / str(number) / name, flags)
                print(name, f"{1000 * statistics.median(samples[name]):.1f} ms", file=sys.stderr, flush=True)
    seconds = {name: float(f"{statistics.median(values):.4g}") for name, values in samples.items()}
    where = {key: value for key, value in provenance.record().items() if key in ("version", "commit", "machine")}
    write_json(PATH, with_checksum({"seconds_per_step": seconds, "threads": 2, "steps": STEPS * ROUNDS, **where}))


if __name__ == "__main__":
    main()
