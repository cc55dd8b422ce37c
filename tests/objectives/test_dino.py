"""DINO against loops over pairs of views and prototypes."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from small import EDGES, agree, projections, same, small_batch, small_objective, unsettle

import relatum
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
    objective = small_objective("dino", prototypes=5, projection=6, target_temperature=0.04)
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


def test_five_steps_equal_the_algorithm_of_the_paper() -> None:
    """Algorithm 1 with two views and a small one: student, teacher, centre and schedule, with SGD by hand."""
    objective = small_objective("dino", prototypes=7, projection=5, momentum=0.9, target_temperature=0.04)
    student = torch.nn.ModuleList(
        [copy.deepcopy(m) for m in (objective.backbone, objective.head, objective.prototypes)]
    )
    teacher, center = copy.deepcopy(student), torch.zeros(7, dtype=torch.float64)
    optimizer = torch.optim.SGD([p for p in objective.parameters() if p.requires_grad], lr=0.3)
    for step in range(5):
        batch = small_batch(2, 4, seed=step)
        batch = batch.replace(small_views=small_batch(1, 4, seed=9 + step).views[..., ::2, ::2])
        optimizer.zero_grad()
        loss, _ = objective(batch)
        loss.backward()
        optimizer.step()
        objective.after_step(step, 5)

        large, small = batch.views.flatten(0, 1), batch.small_views[0]
        backbone, head, prototypes = student
        s = cosines(head(torch.cat([backbone(large), backbone(small)])), prototypes.weight)
        t = cosines(teacher[1](teacher[0](large)), teacher[2].weight).detach()
        p_teacher, log_p = ((t - center) / 0.04).softmax(1), (s / 0.1).log_softmax(1)
        pairs = [(0, 1), (1, 0), (0, 2), (1, 2)]  # views of the teacher and the student; view 2 is the small one
        rows = [(p_teacher[4 * a : 4 * a + 4], log_p[4 * b : 4 * b + 4]) for a, b in pairs]
        wanted = sum(-(p * q).sum(1).mean() for p, q in rows) / 4
        assert abs(loss.item() - wanted.item()) < 1e-9
        center = 0.9 * center + 0.1 * t.mean(0)
        student.zero_grad()
        wanted.backward()
        momentum = 1 - 0.1 * (1 + math.cos(math.pi * step / 5)) / 2
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
                fast -= 0.3 * fast.grad
                slow.copy_(momentum * slow + (1 - momentum) * fast)
    torch.testing.assert_close(objective.center, center, rtol=0, atol=1e-9)
    for mine, slow in zip(objective.target_backbone.parameters(), teacher[0].parameters(), strict=True):
        torch.testing.assert_close(mine, slow, rtol=0, atol=1e-9)


def test_only_methods_that_use_small_views_accept_them() -> None:
    from relatum.objectives.dino import DINO

    sets = {"method": "dino", "data.name": "cifar10", "views.small_number": 2}
    DINO.check(config.draft(flags=sets).recipe())
    with pytest.raises(InputError, match="does not use small views"):
        Objective.check(config.draft(flags={**sets, "method": "byol"}).recipe())


def test_small_views_that_the_backbone_does_not_take_are_refused_before_training(
    pictures: Path, tmp_path: Path
) -> None:
    """Conv-4 halves the side three times: 8 pixels are enough, and half of them are not."""
    flags: dict[str, Any] = {"method": "dino", "side": 8, "epochs": 1, "batch_size": 16, "compile": "off"}
    with pytest.raises(InputError, match=r"two blank 4 × 4 images failed .*views.small_side=8"):
        relatum.pretrain(pictures, out=tmp_path / "run", set={"views.small_number": 2}, **flags)
    assert not (tmp_path / "run").exists()
    relatum.pretrain(pictures, out=tmp_path / "run", set={"views.small_number": 2, "views.small_side": 8}, **flags)
