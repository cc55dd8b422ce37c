"""Data-parallel training with two processes on the CPU (gloo)."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from launching import RELATUM, finish, rows, start
from small import small_objective
from torch import distributed, nn

import relatum
from relatum import config, data
from relatum.config.recipe import Checkpoint, Log
from relatum.errors import InputError
from relatum.features import clustering
from relatum.objectives.batch import Batch
from relatum.training.batches import BatchMaker
from relatum.training.build import make_batches, make_objective
from relatum.training.loop import Trainer
from relatum.training.resolve import resolve


def test_ranks_share_a_mini_batch_and_its_views(pictures: Path) -> None:
    draft = config.draft(
        flags={"data.name": str(pictures), "views.number": 3, "train.batch_size": 8, "train.epochs": 1}
    )
    resolved = resolve(draft)
    alone = BatchMaker(resolved.images, resolved.recipe).make(1)
    parts = [BatchMaker(resolved.images, resolved.recipe, rank=rank, world=2).make(1) for rank in range(2)]
    for rank, part in enumerate(parts):
        assert part.indices is not None
        assert alone.indices is not None
        np.testing.assert_array_equal(part.indices, alone.indices[rank::2])
        np.testing.assert_array_equal(part.views, alone.views[:, rank::2])


def test_a_last_batch_too_short_for_all_ranks_is_dropped(pictures: Path) -> None:
    images = data.load(pictures)
    draft = config.draft(flags={"data.name": str(pictures), "train.batch_size": 11, "train.epochs": 1})
    recipe = resolve(draft).recipe  # 36 = 3 * 11 + 3
    assert BatchMaker(images, recipe, min_images=2).dropped == 0
    for shared, steps in ((True, 4), (False, 3)):  # together they hold three images; on its own, one process holds one
        maker = BatchMaker(images, recipe, min_images=2, world=2, shared=shared)
        assert maker.steps_per_epoch == steps
        assert maker.dropped == (0 if shared else 3)


@pytest.mark.parametrize(
    ("method", "flags", "devices", "message"),
    [
        (
            "relational",
            {"data.limit_train": 3, "train.batch_size": 8, "train.sync": "local"},
            2,
            "on 2 devices needs at least 4 images; there are 3",
        ),
        ("deepinfomax", {"preset": "official"}, 1, "a step of deepinfomax needs at least 128 images; there are 36"),
    ],
)
def test_a_run_without_a_single_step_is_refused(
    method: str, flags: dict[str, Any], devices: int, message: str, pictures: Path
) -> None:
    keys = {"method": method, "data.name": str(pictures), "train.epochs": 2}
    resolved = resolve(config.draft(flags={**keys, **flags}))
    objective = make_objective(resolved)
    fabric: Any = SimpleNamespace(world_size=devices, global_rank=0, device="cpu")
    with pytest.raises(InputError, match=message):
        make_batches(resolved, objective, fabric)


CLUSTERING = """
import sys, torch
from torch import distributed, nn
from relatum.objectives import EpochContext
from relatum.objectives.deepcluster import DeepCluster
rank, folder = int(sys.argv[1]), sys.argv[2]
distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
objective = DeepCluster(nn.Identity(), 4, num_images=30, clusters=3, class_weights=True)
def features():
    assert rank == 0, "the first process clusters for all"
    return torch.randn(30, 4, generator=torch.Generator().manual_seed(7))
objective.start_epoch(EpochContext(1, 0, features))
torch.save(objective.state_dict(), f"{folder}/{rank}.pt")
distributed.destroy_process_group()
"""


def test_the_first_process_clusters_for_all(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CLUSTERING]
    children = [subprocess.Popen([*command, str(rank), str(tmp_path)]) for rank in range(2)]
    assert [child.wait(timeout=120) for child in children] == [0, 0]
    one, two = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2))
    points = clustering.prepare(torch.randn(30, 4, generator=torch.Generator().manual_seed(7)))
    labels = clustering.kmeans(points, 3, 1, 0)[1]
    for state in (one, two):
        assert torch.equal(state["pseudo_labels"], labels)
        torch.testing.assert_close(state["cluster_weights"], 1 - torch.bincount(labels, minlength=3) / 30)


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


@pytest.mark.parametrize("method", ["dino", "swav"])
def test_frozen_prototypes_are_trained_later_with_several_processes(method: str) -> None:
    objective = small_objective(method, dtype=torch.float32, freeze_epochs=1)
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        module = nn.parallel.DistributedDataParallel(objective, find_unused_parameters=objective.skips_parameters)
        for epoch in (0, 0, 1):
            module(Batch(torch.randn(2, 6, 3, 32, 32), epoch=epoch))[0].backward()
            weight = objective.prototypes.weight
            assert (weight.grad is None) == (epoch == 0)
    finally:
        distributed.destroy_process_group()


@pytest.mark.parametrize("first", [True, False])
def test_only_the_first_process_saves_by_the_clock(first: bool) -> None:
    checked: list[Any] = []
    trainer: Any = SimpleNamespace(
        recipe=SimpleNamespace(log=Log(), checkpoint=Checkpoint()),
        step=7,
        total=100,
        maker=SimpleNamespace(steps_per_epoch=50),
        fabric=SimpleNamespace(is_global_zero=first),
        _saved_at=time.monotonic() - 1000,
        _milestones=lambda: [],
        _check_finite=checked.append,
        save=lambda metrics: None,
    )
    Trainer._after_step(trainer, torch.zeros(()), {}, None)
    assert len(checked) == first  # another process would look at all weights at every step


STATEFUL = {  # methods that carry state from step to step or from epoch to epoch, and labels that few images have
    "deepcluster": ("--set", "objective.clusters=5"),
    "moco": ("--set", "objective.queue=32"),
    "byol": (),
    "dino": (),
    "dino frozen": ("--set", "objective.freeze_epochs=1"),
    "swav": (),
    "swav frozen": ("--set", "objective.freeze_epochs=1"),
    "supervised": ("--labels", "0.5"),
    "relational": ("--labels", "0.3"),
    "relational apart": ("--labels", "0.3", "--set", "objective.avoid_collisions=true"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", STATEFUL)
def test_runs_of_three_processes_are_those_of_one(name: str, tmp_path: Path) -> None:
    """Two epochs whose last mini-batch has fewer images (2) than there are processes; 32 are not divisible by 3.

    Statistics of two images amplify rounding, and a small learning rate keeps that out of the next steps.
    """
    command = [*RELATUM, "pretrain", "shapes", "--method", name.split()[0], "--limit-train", "162"]
    command += ["--batch-size", "32", "--set", "train.lr=1e-4", *STATEFUL[name]]
    command += ["--views", "2", "--epochs", "2", "--device", "cpu", "--threads", "1", "--set", "log.every_steps=1"]
    devices: dict[str, tuple[str, ...]] = {"one": (), "three": ("--devices", "3")}
    for folder, more in devices.items():
        ((code, _, error),) = finish(start(*command, "--out", str(tmp_path / folder), *more))
        assert code == 0, error
    one, three = (rows(tmp_path / folder) for folder in devices)
    assert [row["step"] for row in three] == list(range(1, 13))
    np.testing.assert_allclose([row["loss"] for row in three], [row["loss"] for row in one], rtol=0, atol=1e-4)


IDLE = """
from torch import nn
class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.fc = nn.Linear(8, 4)
    def forward(self, x):
        return self.body(x)
"""


@pytest.mark.slow
def test_weights_that_are_never_used_do_not_stop_several_processes(tmp_path: Path) -> None:
    """A classifier that `forward` does not call: one process does not mind, and DDP would stop at the second step."""
    (tmp_path / "idle.py").write_text(IDLE)
    command = [*RELATUM, "pretrain", "shapes", "--method", "byol", "--backbone", "idle:Network", "--limit-train", "32"]
    command += ["--batch-size", "8", "--epochs", "1", "--device", "cpu", "--threads", "1", "--set", "log.every_steps=1"]
    devices: dict[str, tuple[str, ...]] = {"one": (), "two": ("--devices", "2")}
    for name, more in devices.items():
        ((code, _, error),) = finish(start(*command, "--out", str(tmp_path / name), *more, PYTHONPATH=str(tmp_path)))
        assert code == 0, error
    one, two = ([row["loss"] for row in rows(tmp_path / name)] for name in devices)
    np.testing.assert_allclose(two, one, rtol=0, atol=1e-4)


@pytest.mark.slow
def test_fifty_steps_of_two_processes_are_those_of_one(tmp_path: Path) -> None:
    """Losses to 1e-3 at each of 50 steps. Later, rounding alone drives runs apart (benchmarks/last_bit.py)."""
    command = [*RELATUM, "pretrain", "shapes", "--limit-train", "640", "--views", "4", "--batch-size", "64"]
    command += ["--epochs", "5", "--device", "cpu", "--threads", "1", "--set", "log.every_steps=1"]
    devices: dict[str, tuple[str, ...]] = {"one": (), "two": ("--devices", "2")}
    for name, more in devices.items():
        ((code, _, error),) = finish(start(*command, "--out", str(tmp_path / name), *more))
        assert code == 0, error
    one, two = ([row["loss"] for row in rows(tmp_path / name)] for name in devices)
    assert len(one) == 50
    np.testing.assert_allclose(two, one, rtol=0, atol=1e-3)


@pytest.mark.slow
def test_five_epochs_of_two_processes_give_the_accuracy_of_one(tmp_path: Path) -> None:
    """Within half a point, at a learning rate at which rounding does not yet drive runs apart, and above random."""
    command = [*RELATUM, "pretrain", "shapes", "--views", "8", "--epochs", "5", "--set", "train.lr=1e-4"]
    command += ["--device", "cpu", "--threads", "1"]
    runs: dict[str, tuple[str, ...]] = {"one": (), "two": ("--devices", "2"), "random": ("--method", "random")}
    for name, more in runs.items():
        ((code, _, error),) = finish(start(*command, "--out", str(tmp_path / name), *more))
        assert code == 0, error
    one, two, random = (relatum.evaluate("linear", tmp_path / name, data="shapes").accuracy for name in runs)
    assert one > random + 10
    assert abs(one - two) <= 0.5
