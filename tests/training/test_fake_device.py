"""Whole training steps of every method on a device without content: no mixed devices, no wait for the device.

docs/scaling.md lists what this covers and what it cannot.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from exact import METHODS, K, make, part
from fake_device import META, empty, move
from torch import distributed

from relatum import views
from relatum.config.recipe import Train
from relatum.distributed import ALONE, World
from relatum.relation import pairs
from relatum.training import optim
from relatum.training.loop import Trainer

# Pairs that avoid known classes are listed on the host, from the labels: one small copy per step.
WAITS = {"relational-random": "Cannot copy out of meta tensor"}


@pytest.fixture(autouse=True)
def _no_empty_pairs_are_kept() -> Iterator[None]:
    yield
    pairs._rolled.cache_clear()


def steps(name: str, backbone: str, optimizer_name: str, world: World = ALONE) -> None:
    """Forward, backward, update, momentum encoders, twice."""
    method, options = METHODS[name]
    objective, batch = make(method, backbone, 6, torch.float64, options, seed=1)
    objective.connect(world)
    batch = part(batch, world)
    move(objective)
    for field in ("views", "indices", "labels", "small_views"):
        value = getattr(batch, field)
        batch = batch if value is None else batch.replace(**{field: empty(value)})
    train = Train(optimizer=optimizer_name, weight_decay=1e-4)
    optimizer = optim.make_optimizer(train, optim.parameter_groups(train, objective, objective.backbone), fused=False)
    for number in range(2):
        optim.set_learning_rate(optimizer, 0.1)
        loss, metrics = objective(batch.replace(step=number))
        assert loss.device == META
        assert all(value.device == META for value in metrics.values())
        loss.backward()
        optimizer.step()
        objective.after_step(number, 2)
        optimizer.zero_grad(set_to_none=True)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(("backbone", "optimizer"), [("conv4", "adam"), ("resnet8", "sgd")])
def test_whole_steps_stay_on_the_device(
    name: str, backbone: str, optimizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "autocast", lambda device, enabled: nullcontext())  # it does not know `meta`
    with pytest.raises(NotImplementedError, match=WAITS[name]) if name in WAITS else nullcontext():
        steps(name, backbone, optimizer)


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages between processes that carry nothing: what the host does around them is what is looked at."""
    for name in ("all_reduce", "all_gather", "broadcast"):
        monkeypatch.setattr(distributed, name, lambda *arguments, **options: None)


@pytest.mark.parametrize("name", METHODS)
def test_steps_of_one_of_two_processes_stay_on_the_device(
    name: str, silent: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "autocast", lambda device, enabled: nullcontext())
    with pytest.raises(NotImplementedError, match=WAITS[name]) if name in WAITS else nullcontext():
        steps(name, "conv4", "adam", World(1, 2))


def test_loss_and_stop_signals_of_all_processes_are_shared_without_a_wait(silent: None) -> None:
    trainer: Any = SimpleNamespace(maker=SimpleNamespace(world=2))
    loss, values, stop = Trainer._across_processes(
        trainer, torch.empty((), device=META), {"accuracy": torch.empty((), device=META)}, True
    )
    assert loss.device == values["accuracy"].device == META
    assert stop is True


def test_every_method_is_here() -> None:
    assert {method for method, _ in METHODS.values()} == set(K)


def test_random_negatives_without_labels_stay_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "autocast", lambda device, enabled: nullcontext())
    monkeypatch.setitem(METHODS, "random", ("relational", {"negatives": "random", "aggregation": "mean"}))
    steps("random", "conv4", "adam")


@pytest.mark.parametrize("policy", sorted(views.POLICIES))
def test_views_are_made_on_the_device(policy: str) -> None:
    indices = np.arange(5)
    chain = views.POLICIES[policy]
    params = views.sample(chain, seed=1, epoch=0, indices=indices, views=3, height=32, width=32, pad=4, side=32)
    images = torch.empty(20, 32, 32, 3, dtype=torch.uint8, device=META)
    statistics: Any = {"mean": (0.5, 0.5, 0.5), "std": (0.2, 0.2, 0.2)}
    made = views.make_views(images, np.tile(indices, 3), params, side=32, backend="torch", **statistics)
    assert made.shape == (15, 3, 32, 32)
    assert made.device == META


def test_what_these_tests_would_find() -> None:
    x = torch.empty(4, device=META)
    waits = [
        x.sum().item,
        x.cpu,
        x.numpy,
        x.nonzero,
        lambda: x[x > 0],
        lambda: torch.bincount(x.long()),
        lambda: x + torch.zeros(4),
        lambda: bool(x.any()),
    ]
    for wait in waits:
        with pytest.raises((RuntimeError, NotImplementedError, TypeError)):
            wait()
