"""`python results/verify.py`: evaluates every backbone of the ledger again and compares with the committed figures.

Needs the datasets (`RELATUM_DATA`). Exit code 1 if a figure differs by more than `TOLERANCE` points: other processors
round differently, which moves a few of 10,000 predictions.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import relatum
from relatum.runs import ledger

HERE = Path(__file__).parent
TOLERANCE = 0.1
PROTOCOLS = ("linear", "knn", "retrieval")


def main() -> int:
    """Print a line per result and return how many differ."""
    differing = 0
    with tempfile.TemporaryDirectory() as place:
        for entry in ledger.read(HERE):
            run = Path(place) / entry.path.stem
            if not ledger.restore(entry, run):
                continue
            for committed in entry.results:
                if committed["protocol"] not in PROTOCOLS:
                    continue
                now = relatum.evaluate(
                    committed["protocol"],
                    run,
                    data=committed["dataset"],
                    split=committed["split"],
                    epochs=committed["settings"].get("epochs"),
                    seed=committed["settings"].get("seed"),
                    progress=False,
                )
                assert now.accuracy is not None
                difference = now.accuracy - committed["accuracy"]
                differing += abs(difference) > TOLERANCE
                name = f"{entry.path.stem} {committed['protocol']} {committed['dataset']} {committed['split']}"
                print(f"{name}: {committed['accuracy']:.2f} committed, {now.accuracy:.2f} now", flush=True)
    print(f"{differing} differ by more than {TOLERANCE} points")
    return differing


if __name__ == "__main__":
    sys.exit(bool(main()))
