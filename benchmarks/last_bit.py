"""How fast rounding errors make two training runs diverge, and runs on several processes from a run on one.

    python benchmarks/last_bit.py --work /tmp/last_bit      writes docs/last_bit.json

Relational reasoning on the built-in images (Conv-4, K = 4, M = 64, 5 epochs, 785 steps), then linear evaluation: by one
process, by two and three, and by one process whose initial weights were moved by one unit in the last place, which is
what rounding does at every step. Needs a few minutes per run.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from relatum.runs import provenance

DOCS = Path(__file__).parents[1] / "docs"
MOVED = """
import sys, torch
from relatum.cli import main
from relatum.training import loop
init = loop.Trainer.__init__
def moved(self, objective, *arguments, **options):
    generator = torch.Generator().manual_seed(int(sys.argv[1]))
    with torch.no_grad():
        for p in objective.parameters():
            up = torch.randint(0, 2, p.shape, generator=generator).bool()
            p.copy_(torch.nextafter(p, torch.where(up, torch.inf, -torch.inf).to(p.dtype)))
    init(self, objective, *arguments, **options)
loop.Trainer.__init__ = moved
main(sys.argv[2:])
"""
RELATUM = (sys.executable, "-m", "relatum")
RUNS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "one process": (RELATUM, ()),
    "two processes": (RELATUM, ("--devices", "2")),
    "three processes": (RELATUM, ("--devices", "3")),
    "one process, weights moved by one unit in the last place (1)": ((sys.executable, "-c", MOVED, "1"), ()),
    "one process, weights moved by one unit in the last place (2)": ((sys.executable, "-c", MOVED, "2"), ()),
}
COMMON = ("shapes", "--views", "4", "--batch-size", "64", "--epochs", "5", "--device", "cpu", "--threads", "1")


def losses(run: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for the runs; finished ones are used again")
    parser.add_argument("--out", type=Path, default=DOCS, help="folder of last_bit.json")
    options = parser.parse_args()
    results = {}
    for number, (name, (program, more)) in enumerate(RUNS.items()):
        run = options.work / str(number)
        if not (run / "backbone.safetensors").exists():
            settings = ("--set", "log.every_steps=1", "--out", str(run), "--resume")
            subprocess.run([*program, "pretrain", *COMMON, *settings, *more], check=True)
        command = [*RELATUM, "evaluate", "linear", str(run), "--data", "shapes", "--json"]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        apart = np.abs(np.subtract(losses(run), losses(options.work / "0")))
        results[name] = {
            "linear_accuracy": json.loads(done.stdout)["accuracy"],
            "loss_apart": {str(steps): float(f"{apart[:steps].max():.1e}") for steps in (10, 50, 200, len(apart))},
        }
        print(name, results[name], flush=True)
    text = json.dumps({"results": results, **provenance.record()}, indent=1)
    (options.out / "last_bit.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
