"""Optimisers, and the learning rate as a pure function of the step."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import nn

from relatum.config import Train


def make_optimizer(train: Train, parameters: Iterable[nn.Parameter], *, fused: bool = True) -> torch.optim.Optimizer:
    """Adam or SGD over all parameters; `fused` does one pass over each parameter and its state."""
    if train.optimizer == "sgd":
        return torch.optim.SGD(
            parameters, train.lr, momentum=train.momentum, weight_decay=train.weight_decay, fused=fused
        )
    return torch.optim.Adam(parameters, train.lr, weight_decay=train.weight_decay, fused=fused)


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
        epoch = step // steps_per_epoch
        return float(train.lr * 0.1 ** ((2 * epoch >= train.epochs) + (4 * epoch >= 3 * train.epochs)))
    return train.lr


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set one learning rate for all groups."""
    for group in optimizer.param_groups:
        group["lr"] = lr


def forget(optimizer: torch.optim.Optimizer, parameters: Iterable[nn.Parameter]) -> None:
    """Drop the optimiser's state of parameters that were made anew."""
    for parameter in parameters:
        optimizer.state.pop(parameter, None)
