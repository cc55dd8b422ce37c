"""MoCo against loops: its loss, its queue and its key encoder."""

from __future__ import annotations

import copy

import pytest
import torch
from small import EDGES, agree, projections, same, small_batch, small_objective, unsettle

from relatum.objectives.moco import enqueue, moco_loss


def oracle(queries: torch.Tensor, keys: torch.Tensor, queue: torch.Tensor, temperature: float) -> torch.Tensor:
    """One query and one key after the other."""
    views, images = queries.shape[:2]
    losses = []
    for a in range(views):
        for b in range(views):
            for m in range(images):
                if a != b:
                    positive = torch.exp(torch.dot(queries[a, m], keys[b, m]) / temperature)
                    negatives = sum(torch.exp(torch.dot(queries[a, m], n) / temperature) for n in queue)
                    losses.append(-torch.log(positive / (positive + negatives)))
    return sum(losses) / len(losses)


@pytest.mark.parametrize("kind", EDGES)
@pytest.mark.parametrize("views", [2, 3])
def test_the_loss_and_its_gradient_equal_a_loop(kind: str, views: int) -> None:
    queries, keys = projections(kind, views), projections(kind, views, seed=1)
    queue = projections("random", 1, seed=2)[0].detach()
    same(moco_loss(queries, keys, queue, 0.3)[0], oracle(queries, keys, queue, 0.3), queries, keys)


def test_the_method_compares_with_the_queue_and_then_adds_its_keys() -> None:
    objective = small_objective("moco", queue=10, projection=7, temperature=0.1)
    unsettle(objective.target_backbone)
    batch = small_batch(2, 3)
    x, before = batch.views.flatten(0, 1), objective.queue.clone()
    queries = torch.nn.functional.normalize(objective.head(objective.backbone(x)), dim=1).view(2, 3, 7)
    keys = torch.nn.functional.normalize(objective.target_head(objective.target_backbone(x)), dim=1).detach()
    agree(objective, objective(batch)[0], oracle(queries, keys.view(2, 3, 7), before, 0.1))
    torch.testing.assert_close(objective.queue, torch.cat([keys, before[6:]]), rtol=0, atol=1e-12)
    assert int(objective.position) == 6
    objective.eval()
    objective(batch)
    assert int(objective.position) == 6  # looking at a batch changes nothing


@pytest.mark.parametrize("size", [1, 4, 5, 7, 12])
def test_the_queue_equals_a_plain_ring(size: int) -> None:
    queue, position = torch.zeros(size, 2), torch.zeros((), dtype=torch.long)
    ring, place, number = [0.0] * size, 0, 0
    for count in (3, 5, 1, 4):
        keys = [float(number + i + 1) for i in range(count)]
        number += count
        enqueue(queue, position, torch.tensor(keys)[:, None].expand(count, 2))
        for key in keys:
            ring[place] = key
            place = (place + 1) % size
        assert queue[:, 0].tolist() == ring
        assert int(position) == place


def test_the_key_encoder_is_a_moving_average() -> None:
    objective = small_objective("moco", momentum=0.75)
    unsettle(objective.target_backbone)
    pairs = list(zip(objective.target_backbone.parameters(), objective.backbone.parameters(), strict=True))
    wanted = [0.75 * slow.detach() + 0.25 * fast.detach() for slow, fast in pairs]
    objective.after_step(5, 10)
    for (slow, _), want in zip(pairs, wanted, strict=True):
        torch.testing.assert_close(slow.detach(), want, rtol=0, atol=1e-12)


def test_five_steps_equal_the_algorithm_of_the_paper() -> None:
    """Algorithm 1 for both orders of two views, with a list as the queue and SGD by hand."""
    objective = small_objective("moco", queue=9, projection=5, momentum=0.8, temperature=0.1)
    encoder = torch.nn.Sequential(copy.deepcopy(objective.backbone), copy.deepcopy(objective.head))
    key_encoder = copy.deepcopy(encoder)
    queue = list(objective.queue.flip(0))  # the newest first: place 0 is written over first
    optimizer = torch.optim.SGD([p for p in objective.parameters() if p.requires_grad], lr=0.3)
    for step in range(5):
        x = small_batch(2, 4, seed=step).views
        optimizer.zero_grad()
        loss, _ = objective(x)
        loss.backward()
        optimizer.step()
        objective.after_step(step, 5)

        q = torch.nn.functional.normalize(encoder(x.flatten(0, 1)), dim=1)
        k = torch.nn.functional.normalize(key_encoder(x.flatten(0, 1)), dim=1).detach()
        logits = [
            torch.stack([torch.dot(q[a], k[b]), *(torch.dot(q[a], n) for n in queue)]) / 0.1
            for a, b in [*zip(range(4), range(4, 8), strict=True), *zip(range(4, 8), range(4), strict=True)]
        ]
        wanted = torch.nn.functional.cross_entropy(torch.stack(logits), torch.zeros(8, dtype=torch.long))
        assert abs(loss.item() - wanted.item()) < 1e-9
        encoder.zero_grad()
        wanted.backward()
        with torch.no_grad():
            for p in encoder.parameters():
                p -= 0.3 * p.grad
            for slow, fast in zip(key_encoder.parameters(), encoder.parameters(), strict=True):
                slow.copy_(0.8 * slow + 0.2 * fast)
        queue = [*k.flip(0), *queue][:9]
    for mine, wanted in zip(objective.target_backbone.parameters(), key_encoder[0].parameters(), strict=True):
        torch.testing.assert_close(mine, wanted, rtol=0, atol=1e-9)
