"""Fuzzes the files that a report reads: `python tests/fuzz/fuzz_report.py --minutes 10`."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
from harness import fuzz

sys.path.append(str(Path(__file__).parents[1] / "support"))
from runmaker import RunMaker, blobs

from relatum.report.document import build

ORIGINAL = Path(tempfile.mkdtemp(prefix="fuzz-run-")) / "run"
RunMaker(ORIGINAL).full(blobs(40, 8), np.arange(40) % 10)
FILES = sorted(path.relative_to(ORIGINAL) for path in ORIGINAL.rglob("*") if path.is_file())
SEEDS = [(ORIGINAL / file).read_bytes() for file in FILES]


def attempt(content: bytes, number: int, folder: Path) -> None:
    shutil.copytree(ORIGINAL, folder / "run")
    (folder / "run" / FILES[number]).write_bytes(content)
    build([folder / "run"], folder / "report.html")


if __name__ == "__main__":
    try:
        fuzz("report", SEEDS, attempt)
    finally:
        shutil.rmtree(ORIGINAL.parent)
