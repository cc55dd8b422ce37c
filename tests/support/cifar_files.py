"""CIFAR-10 and CIFAR-100 as their authors pack them, of generated pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from python2 import python2_pickle

from relatum.data.readers.shapes import draw


def write_cifar(place: Path) -> Path:
    """Write both datasets, of 300 + 100 pictures each, into a data root."""
    ten, hundred = place / "cifar-10-batches-py", place / "cifar-100-python"
    ten.mkdir()
    hundred.mkdir()
    for number, (split, count) in enumerate((("train", 300), ("test", 100))):
        images, labels = draw(count, seed=7, split=split)
        rows = np.ascontiguousarray(images.transpose(0, 3, 1, 2)).reshape(count, -1)
        parts = 5 if split == "train" else 1
        for part in range(parts):
            part_rows = slice(part * count // parts, (part + 1) * count // parts)
            name = f"data_batch_{part + 1}" if split == "train" else "test_batch"
            (ten / name).write_bytes(python2_pickle({b"data": rows[part_rows], b"labels": labels[part_rows].tolist()}))
        fine = [int(10 * label + (i + number) % 10) for i, label in enumerate(labels)]
        content = {b"data": rows, b"fine_labels": fine, b"coarse_labels": [f // 5 for f in fine]}
        (hundred / split).write_bytes(python2_pickle(content))
    (ten / "batches.meta").write_bytes(python2_pickle({b"label_names": [b"t%d" % i for i in range(10)]}))
    names = {
        b"fine_label_names": [b"f%d" % i for i in range(100)],
        b"coarse_label_names": [b"k%d" % i for i in range(20)],
    }
    (hundred / "meta").write_bytes(python2_pickle(names))
    return place
