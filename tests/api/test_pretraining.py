"""`relatum.pretrain` in a process that continues afterwards."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

import relatum
from relatum.errors import InputError
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"data": "x" * 5000}, "File name too long"),
        ({"data": "shapes", "out": "a\0b"}, "is not a path"),
        ({"data": "shapes", "set": [1]}, "has no '='"),
    ],
)
def test_odd_arguments_are_one_line(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message) as error:
        relatum.pretrain(**{"out": tmp_path / "run", **arguments})
    assert "\n" not in str(error.value)
