"""`relatum.pretrain` in a process that continues afterwards."""

from __future__ import annotations

import gc
from pathlib import Path

import relatum
from relatum.training.batches import BatchMaker


def test_training_leaves_no_images_in_memory(pictures: Path, tmp_path: Path) -> None:
    """The soak test showed it: each run of a process kept its images, and an open file, until the collector ran."""
    gc.collect()
    gc.disable()
    try:
        for seed in (1, 2):
            flags = {"views": 2, "batch_size": 18, "epochs": 1, "threads": 1, "compile": "off", "quiet": True}
            relatum.pretrain(pictures, out=tmp_path / str(seed), seed=seed, **flags)  # type: ignore[arg-type]
        assert not [thing for thing in gc.get_objects() if type(thing) is BatchMaker]
    finally:
        gc.enable()
