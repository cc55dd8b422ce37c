"""DINO against loops over pairs of views and prototypes."""

from __future__ import annotations

import pytest
import torch
from small import EDGES, agree, projections, same, small_batch, small_objective, unsettle

from relatum import config
from relatum.errors import InputError
from relatum.objectives.agreement import mean_cross_entropy
from relatum.objectives.base import Objective


def softmax(logits: torch.Tensor) -> torch.Tensor:
    weights = torch.stack([torch.exp(x) for x in logits])
    return weights / sum(weights)


def oracle(student: torch.Tensor, teacher: torch.Tensor, center: torch.Tensor) -> torch.Tensor:
    """(L, M, C) and (K, M, C) logits: the cross-entropy of every pair of two different views."""
    losses = []
    for a in range(len(teacher)):
        for b in range(len(student)):
            for m in range(student.shape[1]):
                if a != b:
                    target = softmax((teacher[a, m] - center) / 0.04)
                    losses.append(-sum(target * torch.log(softmax(student[b, m] / 0.1))))
    return sum(losses) / len(losses)


def cosines(z: torch.Tensor, prototypes: torch.Tensor) -> torch.Tensor:
    return torch.stack([torch.stack([torch.dot(r / r.norm(), p / p.norm()) for p in prototypes]) for r in z])


@pytest.mark.parametrize("small", [0, 2])
@pytest.mark.parametrize(("views", "images"), [(2, 5), (4, 2)])
def test_the_loss_and_its_gradient_equal_a_loop(views: int, images: int, small: int) -> None:
    objective = small_objective("dino", prototypes=5, projection=6)
    for module in (objective.target_backbone, objective.target_head, objective.target_prototypes):
        unsettle(module)
    objective.center.normal_(generator=torch.Generator().manual_seed(2)).mul_(0.1)
    center = objective.center.clone()
    batch = small_batch(views, images)
    if small:
        batch = batch.replace(small_views=small_batch(small, images, seed=4).views[..., ::2, ::2])
    loss, metrics = objective(batch)
    z = objective.backbone(batch.views.flatten(0, 1))
    teacher_z = objective.target_head(objective.target_backbone(batch.views.flatten(0, 1))).detach()
    if small:
        z = torch.cat([z, objective.backbone(batch.small_views.flatten(0, 1))])
    student = cosines(objective.head(z), objective.prototypes.weight)
    teacher = cosines(teacher_z, objective.target_prototypes.weight).detach()
    agree(objective, loss, oracle(student.view(-1, images, 5), teacher.view(-1, images, 5), center))
    expected = 0.9 * center + 0.1 * sum(teacher) / len(teacher)
    torch.testing.assert_close(objective.center, expected, rtol=0, atol=1e-12)
    assert 0 <= float(metrics["target_entropy"]) <= torch.log(torch.tensor(5.0))


@pytest.mark.parametrize("kind", EDGES)
def test_the_cross_entropy_equals_a_loop_at_the_edges(kind: str) -> None:
    student, teacher = projections(kind, views=3), projections(kind, views=2, seed=1).detach()
    center = teacher.mean((0, 1))
    targets = ((teacher - center) / 0.04).softmax(2)
    same(mean_cross_entropy(targets, (student / 0.1).log_softmax(2)), oracle(student, teacher, center), student)


def test_frozen_prototypes_get_no_gradient_until_their_epoch() -> None:
    objective = small_objective("dino", freeze_epochs=1)
    objective(small_batch(2, 4))[0].backward()
    assert objective.prototypes.weight.grad is None
    second = small_batch(2, 4)
    second.epoch = 1
    objective(second)[0].backward()
    assert float(objective.prototypes.weight.grad.abs().max()) > 0


def test_only_methods_that_use_small_views_accept_them() -> None:
    from relatum.objectives.dino import DINO

    sets = {"method": "dino", "data.name": "cifar10", "views.small_number": 2}
    DINO.check(config.draft(flags=sets).recipe())
    with pytest.raises(InputError, match="does not use small views"):
        Objective.check(config.draft(flags={**sets, "method": "byol"}).recipe())
