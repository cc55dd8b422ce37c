"""One step of a method on a mini-batch, alone or shared by several processes: its loss, gradients and buffers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from relatum import backbones, distributed, objectives, registry
from relatum.backbones import fused
from relatum.config import methods
from relatum.config.settings import build
from relatum.objectives.batch import Batch

K = {"relational": 4, "simclr": 3, "rotation": 4, "deepcluster": 2, "deepinfomax": 1, "supervised": 2}
K |= {"byol": 3, "simsiam": 2, "barlow": 3, "vicreg": 3, "moco": 2, "dino": 2, "swav": 2, "emp": 4}
SMALL = {"dino": 2, "swav": 1}  # small views

# Every method, and the variants of relational reasoning: name of the method, options.
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "relational": ("relational", {}),
    "relational-random": ("relational", {"negatives": "random", "aggregation": "mean", "avoid_collisions": True}),
    "relational-max": ("relational", {"aggregation": "max"}),
    "relational-dot": ("relational", {"head": "dot"}),
    "relational-encoder": ("relational", {"head": "encoder"}),
    "simclr": ("simclr", {}),
    "rotation": ("rotation", {}),
    "deepcluster": ("deepcluster", {"class_weights": True}),
    "deepinfomax": ("deepinfomax", {"locations": 9}),
    "supervised": ("supervised", {}),
    "byol": ("byol", {}),
    "simsiam": ("simsiam", {}),
    "barlow": ("barlow", {}),
    "vicreg": ("vicreg", {}),
    "moco": ("moco", {"queue": 20}),
    "dino": ("dino", {}),
    "swav": ("swav", {}),
    "emp": ("emp", {}),
}


class Turns:
    """The part of `ViewParams` that RotationNet reads."""

    def __init__(self, turns: Tensor) -> None:
        self.turns = turns.numpy()


def make(method: str, backbone: str, images: int, dtype: torch.dtype, options: dict[str, Any], seed: int) -> Any:
    """An objective with seeded weights and a whole mini-batch for it."""
    network = backbones.build(backbone, seed=5)
    if dtype == torch.float32:
        fused.attach(network)
    row = registry.find(methods.METHODS, "method", method)
    with backbones.seeded(5, 1):
        objective = objectives.build(
            method,
            network,
            64,
            build(row.options, options, "objective"),
            objectives.Context(
                num_images=20, num_classes=3, side=32, kernels="numba" if dtype == torch.float32 else "torch"
            ),
        )
    objective.to(dtype)
    generator = torch.Generator().manual_seed(seed)
    views = torch.randn(K[method], images, 3, 32, 32, generator=generator, dtype=torch.float64).to(dtype)
    labels = torch.randint(0, 3, (images,), generator=generator)
    turns = torch.arange(4).repeat_interleave(images) if method == "rotation" else torch.zeros(K[method] * images)
    if method == "deepcluster":
        objective.pseudo_labels.copy_(torch.arange(20) % 7)
    indices = torch.arange(images) % 20
    batch = Batch(views, Turns(turns.long()), indices, labels, seed=1, epoch=2, step=3)  # type: ignore[arg-type]
    if method in SMALL:
        small = torch.randn(SMALL[method], images, 3, 16, 16, generator=generator, dtype=torch.float64)
        batch = batch.replace(small_views=small.to(dtype))
    return objective.train(), batch


def part(batch: Batch, world: distributed.World) -> Batch:
    """What a process of `world` holds of a mini-batch."""
    assert batch.indices is not None
    assert batch.labels is not None
    taken, (views, images) = slice(world.rank, None, world.size), batch.views.shape[:2]
    turns = torch.from_numpy(np.asarray(batch.params.turns)).view(views, images)[:, taken].flatten()  # type: ignore
    small = None if batch.small_views is None else batch.small_views[:, taken]
    return batch.replace(
        small_views=small,
        views=batch.views[:, taken],
        params=Turns(turns),
        indices=batch.indices[taken],
        labels=batch.labels[taken],
    )


UNDECIDED = 2e-6  # an activation this close to zero may lie on either side of it in float32

# Where the search for a decided mini-batch starts: backbone, number of views, images. It only saves time.
SEEDS = {
    **{("conv4", 4, 8): 14, ("conv4", 3, 8): 9, ("conv4", 3, 2): 9},
    **{("resnet8", 4, 8): 34, ("resnet8", 4, 7): 23, ("resnet8", 4, 2): 19},
    **{
        ("resnet8", 3, 8): 47,
        ("resnet8", 3, 7): 30,
        ("resnet8", 3, 2): 12,
        ("resnet8", 2, 8): 9,
        ("resnet8", 2, 7): 11,
    },
}


def decided(method: str, backbone: str, images: int, options: dict[str, Any]) -> int:
    """The seed of a mini-batch without an activation next to zero, as computed by one process in float64.

    The gradient of ReLU jumps at zero. One of a million activations that float32 rounds to the other side changes the
    gradient by 1e-3 and more, whoever computes it: such a mini-batch cannot tell sums over processes from rounding.
    """
    first = SEEDS.get((backbone, K[method], images), 8)
    for seed in range(first, first + 100):
        if _nearest_to_zero(method, backbone, images, options, seed) > UNDECIDED:
            return seed
    raise AssertionError(f"{method} on {backbone}: every mini-batch has an activation next to zero")


def _nearest_to_zero(method: str, backbone: str, images: int, options: dict[str, Any], seed: int) -> float:
    """The smallest input of an activation function in float64; exact zeros stay zero in any precision."""
    relu, leaky_relu, nearest = F.relu, F.leaky_relu, [1.0]

    def look(x: Tensor) -> None:
        sizes = x.detach().abs()
        nearest.append(float(sizes[sizes > 0].min()) if bool((sizes > 0).any()) else 1.0)

    def seen_relu(x: Tensor, inplace: bool = False) -> Tensor:
        look(x)
        return relu(x)

    def seen_leaky_relu(x: Tensor, slope: float = 0.01, inplace: bool = False) -> Tensor:
        look(x)
        return leaky_relu(x, slope)

    F.relu, F.leaky_relu = seen_relu, seen_leaky_relu
    try:
        step(method, backbone, images, torch.float64, options, seed)
    finally:
        F.relu, F.leaky_relu = relu, leaky_relu
    return min(nearest)


def step(
    method: str,
    backbone: str,
    images: int,
    dtype: torch.dtype,
    options: dict[str, Any],
    seed: int = 8,
) -> dict[str, Any]:
    """Loss, metrics, gradients (averaged over processes, as DDP does) and buffers after one step."""
    objective, batch = make(method, backbone, images, dtype, options, seed)
    world = distributed.current()
    objective.connect(world)
    loss, metrics = objective(part(batch, world))
    loss.backward()
    return {
        "loss": float(world.mean(loss.detach())),
        "metrics": {name: float(value) for name, value in metrics.items()},
        "gradients": {name: world.mean(p.grad) for name, p in objective.named_parameters() if p.grad is not None},
        "buffers": dict(objective.named_buffers()),
    }


def difference(gradients: dict[str, Tensor], reference: dict[str, Tensor]) -> float:
    """How much two gradients differ, relative to the whole of the second one.

    Relative to the whole: the gradient of a bias before a batch-norm is nothing but rounding errors.
    """
    both = [(gradients[key].double(), value.double()) for key, value in reference.items()]
    norms = [torch.stack([x.norm() for x in xs]).norm() for xs in ([a - b for a, b in both], [b for _, b in both])]
    return float(norms[0] / norms[1])
