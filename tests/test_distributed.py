"""Data-parallel training with two processes on the CPU (gloo)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from relatum import config, data
from relatum.loader import BatchMaker
from relatum.prepare import prepare


def test_ranks_share_a_mini_batch_and_its_views(pictures: Path) -> None:
    draft = config.draft(
        flags={"data.name": str(pictures), "views.number": 3, "train.batch_size": 8, "train.epochs": 1}
    )
    prepared = prepare(draft)
    alone = BatchMaker(prepared.images, prepared.recipe).make(1)
    parts = [BatchMaker(prepared.images, prepared.recipe, rank=rank, world=2).make(1) for rank in range(2)]
    for rank, part in enumerate(parts):
        assert part.indices is not None
        assert alone.indices is not None
        np.testing.assert_array_equal(part.indices, alone.indices[rank::2])
        np.testing.assert_array_equal(part.views, alone.views[:, rank::2])


def test_a_last_batch_too_short_for_all_ranks_is_dropped(pictures: Path) -> None:
    images = data.load(pictures)
    draft = config.draft(flags={"data.name": str(pictures), "train.batch_size": 11, "train.epochs": 1})
    recipe = prepare(draft).recipe  # 36 = 3 * 11 + 3
    assert BatchMaker(images, recipe, min_images=2).dropped == 0
    maker = BatchMaker(images, recipe, min_images=2, world=2)
    assert (maker.dropped, maker.steps_per_epoch) == (3, 3)


@pytest.mark.slow
def test_two_processes_train_one_run(pictures: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [
        *(sys.executable, "-m", "relatum", "pretrain", str(pictures), "--out", str(run), "--device", "cpu"),
        *("--devices", "2", "--views", "3", "--batch-size", "8", "--epochs", "2", "--compile", "off", "--threads", "1"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["step"] == 10
    assert (run / "backbone.safetensors").exists()
    first = (run / "backbone.safetensors").read_bytes()
    again = subprocess.run([*command, "--overwrite"], capture_output=True, text=True, timeout=300, check=False)
    assert again.returncode == 0, again.stderr
    assert (run / "backbone.safetensors").read_bytes() == first
