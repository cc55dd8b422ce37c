"""Fused paths against the float64 reference: property-based, over shapes, lists, heads and features with a large mean.

Each error is compared with what rounding to float32 can do to that very draw (`tests/support/rounding.py`). Draws in
which float32 cannot tell the sign of a pre-activation or of a logit are skipped.
"""

import copy
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from oracle import assert_gradients_close
from rounding import relation_bounds

from relatum.kernels import numba_available
from relatum.relation import Pairs, RelationHead, choose_backend, pair_loss, random_pairs, roll_pairs
from relatum.relation.compiled import NumbaBackend
from relatum.relation.reference import aggregate


def draw_head(d, hidden, aggregation, generator, kinds):
    """Random parameters; batch-norm weights positive, negative and zero, in float32 numbers."""
    head = RelationHead(d, hidden, aggregation)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
        if kinds == "zeros":  # some units are constant: weight 0, with and without a bias
            head.bn1.weight[::2] = 0
            head.bn1.bias[::4] = 0
    return head


def settle(head, z, pairs, generator):
    """Running statistics near what the features give, as after some training, but not equal to it."""
    left, right, _ = pairs.tensors()
    exact, z = copy.deepcopy(head).double(), z.double()
    with torch.no_grad():
        hidden = exact.linear1(aggregate(z[left], z[right], head.aggregation))
        noise, factor = (
            torch.randn(hidden.shape[1], generator=generator),
            torch.rand(hidden.shape[1], generator=generator),
        )
        head.bn1.running_mean.copy_(hidden.mean(0) + noise * hidden.std(0))
        head.bn1.running_var.copy_(hidden.var(0) * (factor + 0.5))


def draw_pairs(kind, K, M, seed):
    if kind == "roll":
        return roll_pairs(K, M)
    if kind == "random":
        return random_pairs(K, M, seed)
    rng = np.random.default_rng(seed)  # any list: repeated pairs, rows with themselves, rows never used
    size = int(rng.integers(3, 60))
    rows = K * M
    left, right = rng.integers(0, rows, (2, size)).astype(np.int32)
    return Pairs(left, right, rng.integers(0, 2, size).astype(np.float32), rows)


def run(head, z, pairs, dtype, **how):
    head, features = copy.deepcopy(head).to(dtype), z.to(dtype).requires_grad_()
    result = pair_loss(head, features, pairs, **how)
    return result, torch.autograd.grad(result.loss, [features, *head.parameters()]), head


def check_against_float64(aggregation, kind, kinds, K, M, d, hidden, gamma, focal, training, spread, far, seed):
    """Whether the draw could be checked: False if float32 cannot tell a sign."""
    generator = torch.Generator().manual_seed(seed)
    head = draw_head(d, hidden, aggregation, generator, kinds).train(training)
    pairs = draw_pairs(kind, K, M, seed)
    mean = 1000 * spread * torch.randn(d, generator=generator).sign() if far else torch.zeros(d)
    z = mean + spread * torch.randn(K * M, d, generator=generator)
    settle(head, z, pairs, generator)
    exact = copy.deepcopy(head).double()
    how = {"gamma": gamma, "focal": focal}
    bounds = relation_bounds(exact, z.double(), pairs, **how)
    if not bounds.certain:
        return False
    expected, gradients, moved = run(exact, z, pairs, torch.float64, backend="reference", **how)
    for backend in ("torch", "auto"):
        ours, our_gradients, our_head = run(head, z, pairs, torch.float32, backend=backend, **how)
        assert abs(ours.loss.item() - expected.loss.item()) <= bounds.loss.item()
        for place, (gradient, right) in enumerate(zip(our_gradients, gradients, strict=True)):
            error, bound = (gradient.double() - right).norm(), bounds.gradients[place].norm()
            assert error <= bound, f"gradient {place}: off by {error:.2e}, where rounding explains {bound:.2e}"
        for name in ("running_mean", "running_var"):
            error = getattr(our_head.bn1, name).double() - getattr(moved.bn1, name)
            assert error.norm() <= getattr(bounds, name).norm()
        assert our_head.bn1.num_batches_tracked == moved.bn1.num_batches_tracked
        for metric, right in zip(ours[1:], expected[1:], strict=True):
            assert not metric.requires_grad
            assert torch.allclose(metric.double(), right.double(), equal_nan=True)
    return True


DRAWS = {
    "aggregation": st.sampled_from(["cat", "sum", "mean", "max"]),
    "kind": st.sampled_from(["roll", "random", "any"]),
    "kinds": st.sampled_from(["random", "zeros"]),
    "K": st.integers(2, 6),
    "M": st.integers(2, 7),
    "d": st.integers(1, 9),
    "hidden": st.sampled_from([3, 5, 16, 37, 64]),
    "gamma": st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0]),
    "focal": st.booleans(),
    "training": st.booleans(),
    "spread": st.sampled_from([1e-2, 1.0, 30.0]),
    "far": st.booleans(),
    "seed": st.integers(0, 10**6),
}


@given(**DRAWS)
@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.filter_too_much])
def test_value_and_gradients_against_float64(**draw):
    assume(check_against_float64(**draw))


CANCELLING = {"K": 3, "M": 2, "d": 6, "hidden": 3, "training": True, "spread": 30.0, "far": True}


@pytest.mark.parametrize(
    "draw",
    [
        {"aggregation": "max", "kind": "roll", "kinds": "zeros", "gamma": 0.0, "focal": False, "seed": 234571},
        {"aggregation": "sum", "kind": "any", "kinds": "random", "gamma": 2.0, "focal": True, "seed": 349303},
        {"aggregation": "cat", "kind": "random", "kinds": "zeros", "gamma": 0.0, "focal": True, "seed": 165415},
        {"aggregation": "mean", "kind": "random", "kinds": "zeros", "gamma": 2.0, "focal": True, "seed": 584997},
    ],
)
def test_a_gradient_that_cancels_is_off_by_no_more_than_rounding(draw):
    """Here a sum over pairs cancels to between 1e-4 and 1e-6; its error is that of the terms, about 1e-8."""
    assert check_against_float64(**CANCELLING, **draw)


@pytest.mark.slow
@given(**DRAWS)
@settings(max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
def test_value_and_gradients_against_float64_at_length(**draw):
    assume(check_against_float64(**draw))


def both(aggregation="cat", K=8, M=9, d=16, hidden=64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    head = draw_head(d, hidden, aggregation, generator, "random")
    return head, torch.randn(K * M, d, generator=generator), random_pairs(K, M, seed)


@pytest.mark.parametrize("aggregation", ["cat", "sum", "mean", "max"])
def test_the_bounds_are_narrow_where_nothing_cancels(aggregation):
    """The tests above would see an error in the fourth digit: a bound that rounding never reaches would see nothing."""
    head, z, pairs = both(aggregation, K=3, M=4, d=6, hidden=16)
    _, gradients, _ = run(head, z, pairs, torch.float64, backend="reference")
    bounds = relation_bounds(copy.deepcopy(head).double(), z.double(), pairs, 2.0, True).gradients
    for place in (0, 1, 3, 4, 5, 6):  # the gradient of linear1.bias is zero under batch statistics
        assert bounds[place].norm() < 1e-4 * gradients[place].norm()


@pytest.mark.parametrize("aggregation", ["cat", "sum"])
def test_bits_do_not_depend_on_the_number_of_threads_nor_on_the_call(aggregation):
    head, z, pairs = both(aggregation, K=16, M=32)
    before = torch.get_num_threads()
    outcomes = []
    try:
        for threads in (1, 2, 3, 2):
            torch.set_num_threads(threads)
            backend = NumbaBackend(z, head.linear1.weight.detach(), pairs, head)
            torch.set_num_threads(1)  # the matrix products are torch's own
            backend.start(torch.zeros(64, dtype=torch.float64))
            torch.set_num_threads(threads)
            squares = backend.squares()
            ones = torch.ones(64, dtype=torch.float64)
            loss, metrics = backend.loss(
                ones, ones, head.linear2.weight[0].detach(), head.linear2.bias.detach(), 2.0, True
            )
            x, y = backend.sums()
            rows = backend.k_rows.clone()
            backend.gradients(ones, ones, ones)
            outcomes.append([squares, loss, *metrics, backend.g, x, y, rows, backend.k_rows])
    finally:
        torch.set_num_threads(before)
    for outcome in outcomes[1:]:
        assert all(torch.equal(a, b) for a, b in zip(outcomes[0], outcome, strict=True))


def test_two_calls_give_the_same_bits():
    head, z, pairs = both()
    for backend in ("numba", "torch"):
        (_, first, _), (_, second, _) = (run(head, z, pairs, torch.float32, backend=backend) for _ in range(2))
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_many_python_threads_may_enter_at_once():
    head, z, pairs = both(K=12, M=16)
    _, expected, _ = run(head, z, pairs, torch.float32, backend="numba")
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(run, head, z, pairs, torch.float32, backend="numba") for _ in range(40)]
        for finished in runs:
            assert all(torch.equal(a, b) for a, b in zip(finished.result()[1], expected, strict=True))


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_gradients_scale_accumulate_and_survive_a_second_backward(backend):
    head, z, pairs = both()
    z.requires_grad_()
    _, expected, _ = run(head, z.detach(), pairs, torch.float32, backend=backend)
    loss = 3.0 * pair_loss(head, z, pairs, backend=backend).loss
    loss.backward(retain_graph=True)
    loss.backward()
    for gradient, once in zip([z.grad, *(p.grad for p in head.parameters())], expected, strict=True):
        assert torch.allclose(gradient, 6 * once, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_momentum_none_and_untracked_statistics_behave_as_batch_norm_does(backend):
    for change in ({"momentum": None}, {"track_running_stats": False}):
        head, z, pairs = both()
        head.bn1 = torch.nn.BatchNorm1d(64, **change)
        twin = copy.deepcopy(head)
        for step in range(3):
            ours = pair_loss(head, z * (step + 1), pairs, backend=backend)
            theirs = pair_loss(twin, z * (step + 1), pairs, backend="reference")
            assert torch.allclose(ours.loss, theirs.loss, rtol=1e-5)
        for name, tensor in head.state_dict().items():
            assert torch.allclose(tensor, twin.state_dict()[name], rtol=1e-4, atol=1e-6), name
        ours, theirs = (pair_loss(h.eval(), z, pairs, backend=b) for h, b in ((head, backend), (twin, "reference")))
        assert torch.allclose(ours.loss, theirs.loss, rtol=1e-5)


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_nan_features_give_a_nan_loss_and_not_a_quiet_number(backend):
    head, z, pairs = both()
    z[5, 3] = float("nan")
    assert pair_loss(head, z, pairs, backend=backend).loss.isnan()


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_a_single_pair_is_refused_in_training_and_served_in_eval(backend):
    head, z, _ = both()
    one = Pairs(np.array([0], np.int32), np.array([1], np.int32), np.array([1], np.float32), len(z))
    with pytest.raises(ValueError, match="at least two pairs"):
        pair_loss(head, z, one, backend=backend)
    result = pair_loss(head.eval(), z, one, backend=backend)
    assert torch.allclose(result.loss, pair_loss(head, z, one, backend="reference").loss, rtol=1e-5)
    assert result.negative_accuracy.isnan()  # there is no negative


def test_parameters_changed_between_forward_and_backward_are_noticed():
    head, z, pairs = both()
    loss = pair_loss(head, z.requires_grad_(), pairs).loss
    with torch.no_grad():
        head.linear2.weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_mixed_precision_keeps_statistics_and_loss_in_float32():
    head, z, pairs = both()
    low = z.bfloat16()
    expected, gradients, _ = run(head, low.float(), pairs, torch.float32, backend="torch")
    for backend in ("numba", "torch", "reference"):
        ours, features = copy.deepcopy(head), low.clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = pair_loss(ours, features, pairs, backend=backend).loss
        loss.backward()
        assert loss.dtype == torch.float32
        assert torch.allclose(loss, expected.loss, rtol=1e-5)
        assert features.grad.dtype == torch.bfloat16
        assert (features.grad.float() - gradients[0]).norm() < 0.005 * gradients[0].norm()  # bfloat16 has 8 bits
        assert (ours.linear1.weight.grad - gradients[1]).norm() < 1e-4 * gradients[1].norm()


@pytest.mark.parametrize("aggregation", ["cat", "mean", "max"])
def test_chunks_add_up(aggregation, monkeypatch):
    head, z, pairs = both(aggregation)
    _, whole, _ = run(head, z, pairs, torch.float64, backend="torch")
    monkeypatch.setattr("relatum.relation.chunked.CHUNK", 37)
    _, pieces, _ = run(head, z, pairs, torch.float64, backend="torch")
    assert_gradients_close(pieces, whole, 1e-12)


def test_ties_of_max_are_halved_as_torch_does():
    head, z, pairs = both("max")
    z = torch.relu(z)  # half of all features are exactly 0, so a quarter of all comparisons are ties
    _, ours, _ = run(head, z, pairs, torch.float64, backend="torch")
    _, theirs, _ = run(head, z, pairs, torch.float64, backend="reference")
    assert_gradients_close(ours, theirs, 1e-10)


def test_auto_is_numba_where_it_applies_and_warns_once_if_it_is_missing(monkeypatch):
    head, z, _ = both()
    assert choose_backend(head, z) == "numba"
    assert choose_backend(head, z.double()) == "torch"
    assert choose_backend(copy.deepcopy(head).double(), z) == "torch"
    assert choose_backend(both("max")[0], z) == "torch"
    with pytest.raises(ValueError, match="use backend 'torch'"):
        choose_backend(both("max")[0], z, "numba")
    numba_available.cache_clear()
    monkeypatch.setitem(sys.modules, "numba", None)
    try:
        with pytest.warns(UserWarning, match="torch is used instead"):
            assert choose_backend(head, z) == "torch"
        assert choose_backend(head, z) == "torch"  # a second warning would be an error here
    finally:
        numba_available.cache_clear()
