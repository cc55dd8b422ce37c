"""`relatum.pretrain` in a process that continues afterwards."""

from __future__ import annotations

import gc
import shutil
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import relatum
from relatum.api import pretraining, workers
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


def test_the_next_run_of_a_process_uses_all_threads_again(pictures: Path, tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        relatum.pretrain(pictures, out=tmp_path / "run", method="random", threads=1, quiet=True)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)


def test_the_statistics_of_images_in_memory_take_little_memory() -> None:
    """As floats they would take eight times the memory of the images."""
    pixels = np.random.default_rng(0).integers(0, 200, (1000, 32, 32, 3), dtype=np.uint8)
    images = replace(relatum.data.read_images(pixels[:2]), images=pixels)
    tracemalloc.start()
    try:
        result = pretraining._in_memory(images, None)
        assert tracemalloc.get_traced_memory()[1] < 4 * pixels.nbytes
    finally:
        tracemalloc.stop()
    assert result.mean == pytest.approx(pixels.mean((0, 1, 2)) / 255, rel=1e-12)
    assert result.std == pytest.approx(pixels.std((0, 1, 2)) / 255, rel=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"data": []}, "no images"),
        ({"data": "x" * 5000}, "File name too long"),
        ({"data": "shapes", "out": "a\0b"}, "is not a path"),
        ({"data": "shapes", "set": [1]}, "has no '='"),
    ],
)
def test_odd_arguments_are_one_line(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message) as error:
        relatum.pretrain(**{"out": tmp_path / "run", **arguments})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16, torch.float64])
def test_a_backbone_of_another_precision_is_refused(precision: torch.dtype, pictures: Path, tmp_path: Path) -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()).to(precision)
    with pytest.raises(InputError, match=r"must be float32; '0\.weight' is .*Convert it with backbone\.float\(\)"):
        relatum.pretrain(pictures, backbone=network, out=tmp_path / "run", views=2, batch_size=8, epochs=1, quiet=True)


def test_a_recipe_does_not_start_any_number_of_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_start", lambda *arguments: pytest.fail("a process was started"))
    (tmp_path / "recipe.toml").write_text("[run]\ndevices = 100000\n")
    with pytest.raises(InputError, match=r"devices=100000: this machine has \d+ CPUs?, for at most \d+ processes"):
        relatum.pretrain("shapes", recipe=tmp_path / "recipe.toml", out=tmp_path / "run")
    (tmp_path / "recipe.toml").write_text("\ufeff[views]\nnumber = 9223372036854775807\n", "utf-8")
    with pytest.raises(InputError, match=r"views.number = 9\d+ is out of range: it must be at most 10000"):
        relatum.pretrain("shapes", recipe=tmp_path / "recipe.toml", out=tmp_path / "run")
    with pytest.raises(InputError, match="names more than 1,000,000 shards"):
        relatum.pretrain("http://127.0.0.1:9/{0..99999999999}.tar", out=tmp_path / "run")


def test_a_run_is_not_written_among_images_in_folders_with_the_same_names(pictures: Path, tmp_path: Path) -> None:
    """Images in `index/` were no longer read after the first run, and deleted by the second."""
    folder = tmp_path / "photos"
    shutil.copytree(pictures, folder / "index")
    before = sorted(folder.rglob("*"))
    with pytest.raises(InputError, match=r"its sub-folder index has a name that runs use: choose another out=\.\.\."):
        relatum.pretrain(folder, out=folder, views=2, epochs=1, quiet=True)
    assert sorted(folder.rglob("*")) == before
