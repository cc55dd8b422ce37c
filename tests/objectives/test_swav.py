"""SwAV against loops: the Sinkhorn algorithm and the swapped prediction."""

from __future__ import annotations

import pytest
import torch
from small import EDGES, agree, projections, small_batch, small_objective

from relatum.objectives.swav import sinkhorn


def slow_sinkhorn(scores: torch.Tensor, epsilon: float, iterations: int) -> torch.Tensor:
    """Alternate: each prototype gets 1/C of the weight, then each image 1/M; rows are scaled to 1 at the end."""
    images, prototypes = scores.shape
    q = [[torch.exp(scores[m, c] / epsilon) for c in range(prototypes)] for m in range(images)]
    for _ in range(iterations):
        for c in range(prototypes):
            total = sum(q[m][c] for m in range(images))
            for m in range(images):
                q[m][c] = q[m][c] / total / prototypes
        for m in range(images):
            total = sum(q[m])
            q[m] = [x / total / images for x in q[m]]
    return torch.stack([torch.stack(row) * images for row in q])


@pytest.mark.parametrize("kind", EDGES)
@pytest.mark.parametrize("iterations", [1, 3])
def test_codes_equal_a_loop(kind: str, iterations: int) -> None:
    scores = torch.nn.functional.normalize(projections(kind, 1)[0].detach(), dim=1)
    codes = sinkhorn(scores, 0.05, iterations)
    torch.testing.assert_close(codes, slow_sinkhorn(scores, 0.05, iterations), rtol=0, atol=1e-9)
    torch.testing.assert_close(codes.sum(1), torch.ones(len(scores), dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("epsilon", [0.03, 0.01, 0.001])
def test_every_image_has_a_code_in_float32(epsilon: float) -> None:
    """An image far from all prototypes and a prototype far from all images, whose exponentials are 0 in float32."""
    scores = projections("random", 1)[0].detach().clamp(-0.5, 0.5)
    scores[0], scores[1], scores[2:, 3] = -0.5, 1.0, -0.9
    codes = sinkhorn(scores.float(), epsilon, 3)
    log_q = scores / epsilon
    for _ in range(3):
        log_q = log_q - log_q.logsumexp(0, keepdim=True)
        log_q = log_q - log_q.logsumexp(1, keepdim=True)
    torch.testing.assert_close(codes.double(), log_q.exp(), rtol=0, atol=1e-4)


def test_codes_are_balanced_in_the_long_run() -> None:
    codes = sinkhorn(projections("random", 1)[0].detach(), 0.5, 200)
    torch.testing.assert_close(codes.sum(0), torch.full((5,), 6 / 5, dtype=torch.float64), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("views", "images", "prototypes", "small"), [(2, 6, 5, 0), (4, 3, 4, 2), (2, 2, 1, 0)])
def test_the_loss_and_its_gradient_equal_a_loop(views: int, images: int, prototypes: int, small: int) -> None:
    objective = small_objective("swav", prototypes=prototypes, projection=6, epsilon=0.05)
    batch = small_batch(views, images)
    z = objective.backbone(batch.views.flatten(0, 1))
    if small:
        batch = batch.replace(small_views=small_batch(small, images, seed=4).views[..., ::2, ::2])
        z = torch.cat([z, objective.backbone(batch.small_views.flatten(0, 1))])
    rows = [r / r.norm() for r in objective.head(z)]
    scores = torch.stack([torch.stack([torch.dot(r, p / p.norm()) for p in objective.prototypes.weight]) for r in rows])
    scores = scores.view(-1, images, prototypes)
    losses = []
    for a in range(views):
        codes = slow_sinkhorn(scores[a].detach(), 0.05, 3)
        for b in range(views + small):
            for m in range(images):
                if a != b:
                    weights = [torch.exp(s / 0.1) for s in scores[b, m]]
                    losses.append(-sum(q * torch.log(w / sum(weights)) for q, w in zip(codes[m], weights, strict=True)))
    loss, expected = objective(batch)[0], sum(losses) / len(losses)
    if prototypes == 1:  # one class for all: nothing to learn, and no error
        assert abs(loss.item()) < 1e-12
    else:
        agree(objective, loss, expected)
