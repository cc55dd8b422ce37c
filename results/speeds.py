"""`python results/speeds.py`: seconds per training step on idle cores, of recipes whose cost the results page compares.

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

from relatum.paper.cells import Request
from relatum.paper.plan import plan
from relatum.runs import provenance, speeds
from relatum.runs.folder import read_recipe
from relatum.system.files import with_checksum, write_json

PATH = Path(__file__).parent / speeds.NAME
STEPS, ROUNDS, WARM = 200, 3, 5  # WARM: logged speeds at the start that are left out (compiling, first use of memory)


def recipes() -> list[tuple[int, list[str]]]:
    """Number of images and arguments of `relatum` for every recipe: those of the table `modern`, and of `fast`."""
    planned = [run for run in plan(["modern"], Request()).runs if run.method != "random"]
    fast = [(64, []), (128, ["--method", "simclr"])]
    return [(STEPS * run.batch_size, run.arguments()) for run in planned] + [
        (STEPS * size, ["pretrain", "cifar10", "--preset", "fast", *flags]) for size, flags in fast
    ]


def train(out: Path, images: int, arguments: list[str]) -> list[float]:
    """Seconds per step, as logged by a run of its own process."""
    command = [sys.executable, "-m", "relatum", *arguments, "--out", str(out)]
    command += ["--epochs", "1", "--limit-train", str(images), "--threads", "2"]
    subprocess.run(command, check=True, capture_output=True)
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    recipe = read_recipe(out)
    views = (recipe.views.number + recipe.views.small_number) * recipe.train.batch_size
    return [views / row["views_per_second"] for row in rows[WARM:]]


def main() -> None:
    """Measure every recipe and write the file."""
    samples: dict[int, list[float]] = {}
    conditions = {}
    with tempfile.TemporaryDirectory() as place:
        for turn in range(ROUNDS):
            for number, (images, arguments) in enumerate(recipes()):
                out = Path(place) / f"{turn}-{number}"
                samples.setdefault(number, []).extend(train(out, images, arguments))
                conditions[number] = speeds.condition(read_recipe(out).tables())
                median = 1000 * statistics.median(samples[number])
                print(*conditions[number].values(), f"{median:.1f} ms", file=sys.stderr, flush=True)
    rows = [
        {"condition": conditions[number], "seconds_per_step": float(f"{statistics.median(values):.4g}")}
        for number, values in samples.items()
    ]
    where = {key: value for key, value in provenance.record().items() if key in ("version", "commit", "machine")}
    write_json(PATH, with_checksum({"recipes": rows, "threads": 2, "steps": STEPS * ROUNDS, **where}))


if __name__ == "__main__":
    main()
