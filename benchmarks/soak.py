"""Soak test: train and evaluate for a long time in one process, and watch its memory, open files and threads.

    python benchmarks/soak.py --minutes 30      writes docs/soak.json and docs/soak.svg

A child process repeats, on the dataset `shapes`: pretrain, evaluate (kNN and linear), embed. This process samples the
child every two seconds. Linux only: the samples come from /proc.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from relatum.runs import provenance
from relatum.system.files import write_json

DOCS = Path(__file__).parents[1] / "docs"
EVERY = 2.0  # seconds between two samples
CHILD = """
import itertools, shutil, sys, time
import relatum

folder, end = sys.argv[1], time.monotonic() + float(sys.argv[2])
for number in itertools.count():
    run = f"{folder}/run-{number}"
    flags = dict(views=4, batch_size=64, epochs=2, threads=1, seed=number, quiet=True, set={"log.knn_every": 1})
    relatum.pretrain("shapes", out=run, **flags)
    relatum.evaluate("knn", run, data="shapes", progress=False)
    relatum.evaluate("linear", run, data="shapes", epochs=5, progress=False)
    relatum.embed(run, "shapes", progress=False)
    print(f"round {number + 1}", flush=True)
    shutil.rmtree(run)
    if time.monotonic() > end:
        break
"""


def sample(pid: int) -> dict[str, float]:
    """Resident memory in MB, number of open files and number of threads of a process."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return {
        "memory_mb": int(status["VmRSS"].split()[0]) / 1024,
        "open_files": sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()),
        "threads": int(status["Threads"]),
    }


def watch(minutes: float) -> tuple[list[dict[str, float]], int]:
    """The samples of a child process that works for `minutes`, and its number of rounds."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as output:
        command = [sys.executable, "-c", CHILD, folder, str(60 * minutes)]
        child = subprocess.Popen(command, stdout=output)
        began, samples = time.monotonic(), []
        while child.poll() is None:
            try:
                samples.append({"seconds": round(time.monotonic() - began, 1), **sample(child.pid)})
            except (OSError, KeyError):  # it has just ended
                break
            time.sleep(EVERY)
        if child.wait():
            raise SystemExit(f"the child process failed with exit code {child.returncode}")
        output.seek(0)
        return samples, len(output.read().splitlines())


def growth(samples: list[dict[str, float]], key: str) -> tuple[float, float]:
    """The medians of the second and of the last fifth: the first fifth warms up."""
    fifth = max(1, len(samples) // 5)
    parts = samples[fifth : 2 * fifth], samples[-fifth:]
    before, after = (statistics.median(row[key] for row in part) for part in parts)
    return before, after


def draw(samples: list[dict[str, float]], path: Path) -> None:
    """Three curves over the minutes, one above the other."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    titles = {"memory_mb": "resident memory (MB)", "open_files": "open files", "threads": "threads"}
    figure, panels = pyplot.subplots(3, 1, sharex=True, figsize=(7, 5), layout="constrained")
    for axes, (key, title) in zip(panels, titles.items(), strict=True):
        axes.plot([row["seconds"] / 60 for row in samples], [row[key] for row in samples], linewidth=1)
        axes.set_ylim(bottom=0)
        axes.set_ylabel(title, fontsize=8)
    panels[-1].set_xlabel("minutes")
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Run the soak test and write what was seen."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--out", type=Path, default=DOCS, help="folder of soak.json and soak.svg")
    arguments = parser.parse_args()
    samples, rounds = watch(arguments.minutes)
    report: dict[str, Any] = {"minutes": arguments.minutes, "rounds": rounds, **provenance.record()}
    for key in ("memory_mb", "open_files", "threads"):
        before, after = growth(samples, key)
        report[key] = {"second_fifth": before, "last_fifth": after, "largest": max(row[key] for row in samples)}
    report["samples"] = samples[:: max(1, len(samples) // 200)]
    write_json(arguments.out / "soak.json", report)
    draw(samples, arguments.out / "soak.svg")
    print(json.dumps({key: value for key, value in report.items() if key != "samples"}, indent=2))


if __name__ == "__main__":
    main()
