"""Fuzzes the reader of CIFAR's pickles: `python tests/fuzz/fuzz_cifar.py --minutes 10`."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import numpy as np
from harness import fuzz

sys.path.append(str(Path(__file__).parents[1] / "support"))
from python2 import python2_pickle

from relatum.data import sets
from relatum.data.readers.cifar import _batch

rng = np.random.default_rng(0)
CONTENT = {
    b"data": rng.integers(0, 256, (2, 3072), dtype=np.uint8),
    b"labels": [3, 9],
    b"filenames": [b"a.png", b"b.png"],
}
SEEDS = [
    python2_pickle(CONTENT),
    *(pickle.dumps({"data": CONTENT[b"data"], "labels": [3, 9], "x": ("a", ["b"])}, protocol) for protocol in (3, 4)),
]


def attempt(content: bytes, number: int, folder: Path) -> None:
    (folder / "batch").write_bytes(content)
    _batch(folder / "batch", sets.get("cifar10"), "labels")


if __name__ == "__main__":
    fuzz("cifar", SEEDS, attempt)
