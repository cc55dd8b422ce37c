"""Statistics shared across ranks: two ranks, simulated by two threads, against one process that sees all pairs."""

import copy
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from oracle import assert_gradients_close

from relatum.relation import Pairs, RelationHead, focal_bce, pair_loss, random_pairs, roll_pairs


class Ranks:
    """Sums one vector of each rank, as an all-reduce would, and counts the calls."""

    def __init__(self, size):
        self.barrier, self.parts, self.calls = threading.Barrier(size), [None] * size, [0] * size

    def reducer(self, rank):
        def reduce(vector):
            assert vector.dtype == torch.float64
            self.calls[rank] += 1
            self.parts[rank] = vector.clone()
            self.barrier.wait()
            total = sum(self.parts)
            self.barrier.wait()
            return total

        return reduce


def inputs(aggregation, d=5, hidden=24):
    generator = torch.Generator().manual_seed(4)
    head = RelationHead(d, hidden, aggregation)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    lists = [roll_pairs(3, 5), random_pairs(4, 6, 8)]
    # The ranks' features differ in mean by many spreads, so their own statistics would be far off.
    features = [torch.randn(p.rows, d, generator=generator) + 20 * rank for rank, p in enumerate(lists)]
    return head, lists, features


def single_process(head, lists, features, dtype):
    """The sum of the ranks' mean losses, with batch-norm over all pairs at once."""
    head, z = copy.deepcopy(head).to(dtype), torch.cat(features).to(dtype).requires_grad_()
    offset = np.cumsum([0, *(p.rows for p in lists)])
    left = np.concatenate([p.left + o for p, o in zip(lists, offset[:-1], strict=True)])
    right = np.concatenate([p.right + o for p, o in zip(lists, offset[:-1], strict=True)])
    everything = Pairs(left, right, np.concatenate([p.targets for p in lists]), int(offset[-1]))
    rows = everything.tensors()
    losses = focal_bce(head(z[rows[0]], z[rows[1]]), rows[2].to(dtype)).split([len(p) for p in lists])
    total = sum(part.mean() for part in losses)
    return [part.mean() for part in losses], torch.autograd.grad(total, [z, *head.parameters()]), head


@pytest.mark.parametrize("aggregation", ["cat", "sum", "mean", "max"])
@pytest.mark.parametrize(
    ("backend", "dtype", "tolerance"), [("torch", torch.float64, 1e-9), ("auto", torch.float32, 1e-4)]
)
def test_two_ranks_equal_one_process(aggregation, backend, dtype, tolerance):
    head, lists, features = inputs(aggregation)
    expected, gradients, moved = single_process(head, lists, features, torch.float64)
    ranks = Ranks(2)

    def one(rank):
        mine, z = copy.deepcopy(head).to(dtype), features[rank].to(dtype).requires_grad_()
        result = pair_loss(mine, z, lists[rank], backend=backend, reduce=ranks.reducer(rank))
        assert ranks.calls[rank] == 1
        grads = torch.autograd.grad(result.loss, [z, *mine.parameters()])
        assert ranks.calls[rank] == 2
        return result.loss, grads, mine

    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(one, range(2)))
    for (loss, _, mine), right in zip(runs, expected, strict=True):
        assert loss.item() == pytest.approx(right.item(), rel=tolerance)
        for name, buffer in mine.bn1.named_buffers():
            theirs = moved.bn1.get_buffer(name).double()
            assert (buffer.double() - theirs).norm() <= tolerance * theirs.norm(), name
    ours = [torch.cat([grads[0] for _, grads, _ in runs])]
    ours += [sum(parts) for parts in zip(*(grads[1:] for _, grads, _ in runs), strict=True)]
    assert_gradients_close(ours, gradients, tolerance)


def test_without_ranks_reduce_changes_nothing_and_eval_mode_never_calls_it():
    head, lists, features = inputs("cat")
    alone = pair_loss(head, features[0], lists[0]).loss
    assert torch.allclose(pair_loss(head, features[0], lists[0], reduce=lambda v: v).loss, alone, rtol=1e-6)

    def never(vector):
        raise AssertionError

    z = features[0].clone().requires_grad_()
    pair_loss(head.eval(), z, lists[0], reduce=never).loss.backward()
    assert z.grad.isfinite().all()


def test_the_reference_refuses_it():
    head, lists, features = inputs("cat")
    with pytest.raises(ValueError, match="across ranks"):
        pair_loss(head, features[0], lists[0], backend="reference", reduce=lambda v: v)
