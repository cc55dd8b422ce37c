"""Small batches in double precision, where a loss and its oracle agree to 1e-9."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn

from relatum import backbones, objectives
from relatum.config.methods import METHODS
from relatum.objectives import Context, EpochContext, Objective
from relatum.objectives.batch import Batch

CLASSES, IMAGES = 3, 24
TRAINED = [name for name, row in METHODS.items() if row.trains]


def small_batch(
    views: int = 4,
    images: int = 6,
    *,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    labels: bool = True,
    step: int = 3,
) -> Batch:
    """A batch of noise in which everything that a method may read is there."""
    generator = torch.Generator().manual_seed(seed)
    turns = np.random.default_rng(seed).integers(0, 4, views * images).astype(np.int8)
    params: Any = SimpleNamespace(turns=turns)
    return Batch(
        views=torch.randn(views, images, 3, 16, 16, generator=generator, dtype=torch.float64).to(dtype),
        params=params,
        indices=torch.randperm(IMAGES, generator=generator)[:images],
        labels=torch.randint(0, CLASSES, (images,), generator=generator) if labels else None,
        seed=1,
        epoch=0,
        step=step,
    )


def small_objective(
    method: str, *, dtype: torch.dtype = torch.float64, clustered: bool = True, **options: Any
) -> Objective:
    """A method on Conv-4, ready for its first step."""
    row = METHODS[method]
    with backbones.seeded(1, 1):
        backbone = backbones.build("conv4", seed=1)
        objective = objectives.build(
            method, backbone, 64, row.options(**options), Context(IMAGES, CLASSES, side=32, kernels="torch")
        )
    objective.to(dtype)
    if clustered:
        objective.start_epoch(EpochContext(1, 0, clean_features))
    return objective


def clean_features() -> torch.Tensor:
    return torch.randn(IMAGES, 64, generator=torch.Generator().manual_seed(5))


def gradients(loss: torch.Tensor, module: nn.Module) -> list[torch.Tensor]:
    parameters = [p for p in module.parameters() if p.requires_grad]
    partials = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, partials, strict=True)]


def agree(module: nn.Module, loss: torch.Tensor, oracle: torch.Tensor) -> None:
    """Two losses of one module are the same to 1e-9, and so are all their gradients."""
    assert loss.dtype == torch.float64
    assert abs(loss.item() - oracle.item()) < 1e-9
    pairs = list(zip(gradients(loss, module), gradients(oracle, module), strict=True))
    assert any(bool(want.abs().max() > 1e-6) for _, want in pairs)
    for got, want in pairs:
        assert float((got - want).abs().max()) < 1e-9


EDGES = ["random", "two images", "constant", "one class"]


def projections(kind: str, views: int = 3, size: int = 5, seed: int = 0) -> torch.Tensor:
    """(K, M, P) projections that need a gradient: noise, a batch of two, all rows equal, or one axis for all."""
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(views, 2 if kind == "two images" else 6, size, generator=generator, dtype=torch.float64)
    if kind == "constant":
        z = z[:1, :1].expand_as(z).clone()
    if kind == "one class":  # every projection points along the first axis, with another length
        z = z[:, :, :1].abs() * torch.eye(size, dtype=torch.float64)[0]
    return z.requires_grad_()


def same(value: torch.Tensor, oracle: torch.Tensor, *inputs: torch.Tensor) -> None:
    """Two values are the same to 1e-9, and so are their gradients; relative to the value where it is above 1."""
    assert value.dtype == torch.float64
    assert abs(value.item() - oracle.item()) < 1e-9 * max(1.0, abs(oracle.item()))
    for got, want in zip(
        torch.autograd.grad(value, inputs, retain_graph=True),
        torch.autograd.grad(oracle, inputs, retain_graph=True),
        strict=True,
    ):
        assert float((got - want).abs().max()) < 1e-9 * max(1.0, float(want.abs().max()))


def unsettle(module: nn.Module, seed: int = 3) -> None:
    """Random changes of all weights: a target network that differs from the network it follows."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=generator, dtype=torch.float64).to(p.dtype))
