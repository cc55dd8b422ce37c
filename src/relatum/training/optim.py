"""Optimisers, the threads of an update, and the learning rate as a pure function of the step."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from relatum.config import Train
from relatum.config.schedule import step_decay

# Below this an update takes microseconds on one thread, while on a busy machine two threads wait for one another at
# every parameter: 280 ms instead of 0.1 ms for Conv-4 with other work on both cores.
_SMALL = 1_000_000  # parameters


def parameter_groups(train: Train, objective: nn.Module, backbone: nn.Module) -> list[dict[str, Any]]:
    """All trained parameters in one group; in two, the backbone's last, if it has another learning rate.

    Parameters that need no gradient (a momentum encoder's) are left out.
    """
    trained = [p for p in objective.parameters() if p.requires_grad]
    if train.backbone_lr is None:
        return [{"params": trained}]
    backbone_parameters = set(backbone.parameters())
    rest = [p for p in trained if p not in backbone_parameters]
    return [{"params": rest}, {"params": list(backbone.parameters()), "scale": train.backbone_lr / train.lr}]


def make_optimizer(
    train: Train, parameters: Iterable[nn.Parameter] | list[dict[str, Any]], *, fused: bool = True
) -> torch.optim.Optimizer:
    """Adam or SGD over all parameters; `fused` does one pass over each parameter and its state."""
    if train.optimizer == "sgd":
        sgd = torch.optim.SGD(
            parameters, train.lr, momentum=train.momentum, weight_decay=train.weight_decay, fused=fused
        )
        if train.momentum:
            sgd.register_step_pre_hook(_start_momentum)
        return sgd
    return torch.optim.Adam(parameters, train.lr, weight_decay=train.weight_decay, fused=fused)


def _start_momentum(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """Start missing momentum buffers at zero, which gives the same first update as torch's own start.

    Parameters that were frozen (DINO, SwAV) or reinitialised (DeepCluster) lack one while the others have theirs, and
    fused SGD stops with a TypeError if some are missing.
    """
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None and optimizer.state[parameter].get("momentum_buffer") is None:
                optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)


def update_threads(objective: nn.Module, device: torch.device) -> AbstractContextManager[None]:
    """A context for updates: one thread for a small network on the CPU."""
    count = sum(p.numel() for p in objective.parameters())
    return one_thread() if count < _SMALL and device.type == "cpu" else nullcontext()


class restored_threads(AbstractContextManager[None]):
    """At its end, torch has the number of threads that it had at the beginning."""

    def __enter__(self) -> None:
        self._threads = torch.get_num_threads()

    def __exit__(self, *error: object) -> None:
        torch.set_num_threads(self._threads)


class one_thread(restored_threads):
    """While entered, torch computes on one thread. Element-wise updates have the same bits on any number of them."""

    def __enter__(self) -> None:
        super().__enter__()
        torch.set_num_threads(1)


def learning_rate(train: Train, step: int, steps_per_epoch: int) -> float:
    """The learning rate of a step: linear warm-up, then constant, cosine to zero, or ÷10 at 50 % and 75 %."""
    total = max(1, train.epochs * steps_per_epoch)
    warmup = round(train.warmup_epochs * steps_per_epoch)
    if step < warmup:
        return train.lr * (step + 1) / warmup
    if train.schedule == "cosine":
        progress = (step - warmup) / max(1, total - warmup)
        return train.lr * 0.5 * (1.0 + math.cos(math.pi * progress))
    if train.schedule == "step":
        return train.lr * step_decay(step // steps_per_epoch, train.epochs)
    return train.lr


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate; a group with a `scale` gets that multiple of it."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("scale", 1.0)


def forget(optimizer: torch.optim.Optimizer, parameters: Iterable[nn.Parameter]) -> None:
    """Drop the optimiser's state of parameters that were reinitialised."""
    for parameter in parameters:
        optimizer.state.pop(parameter, None)
