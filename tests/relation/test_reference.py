"""The specification against an oracle that was written apart from it (issue: value and gradients, every parameter)."""

import copy

import pytest
import torch
from oracle import assert_gradients_close, oracle_loss, oracle_pairs, rolled

from relatum.errors import InputError
from relatum.relation import RelationHead, focal_bce, pair_loss, random_pairs, relation_loss, roll_pairs, score
from relatum.relation.reference import accuracies


def random_head(d, hidden, aggregation, seed):
    """Parameters drawn at random, batch-norm's too, in float32 so that both precisions see the same numbers."""
    generator = torch.Generator().manual_seed(seed)
    head = RelationHead(d, hidden, aggregation)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return head, generator


CASES = [
    (aggregation, gamma, focal, negatives, K, M)
    for aggregation in ("cat", "sum", "mean", "max")
    for gamma, focal in ((2.0, True), (0.0, True), (2.0, False))
    for negatives, K, M in (("roll", 2, 3), ("random", 3, 5), ("roll", 4, 3))
] + [
    (aggregation, 2.0, True, negatives, K, M)
    for aggregation in ("cat", "sum", "mean", "max")
    for negatives in ("roll", "random")
    for K, M in ((5, 5), (6, 3), (7, 3), (8, 3))
]


@pytest.mark.parametrize(("aggregation", "gamma", "focal", "negatives", "K", "M"), CASES)
def test_value_and_gradients_equal_the_oracle(aggregation, gamma, focal, negatives, K, M):
    d, hidden = 3, 2
    head, generator = random_head(d, hidden, aggregation, seed=K * 100 + M)
    z = torch.randn(K * M, d, generator=generator)
    if negatives == "roll":
        pairs, partner = roll_pairs(K, M), rolled(M)
    else:
        pairs = random_pairs(K, M, key=K)
        drawn = (pairs.right[~pairs.positives] % M).reshape(-1, M)
        partner = lambda count, n: int(drawn[count, n])  # noqa: E731
    inputs = [t.detach().double().requires_grad_() for t in (z, *head.parameters())]
    expected = oracle_loss(inputs[0], oracle_pairs(K, M, partner), aggregation, *inputs[1:], gamma, focal)
    expected_gradients = torch.autograd.grad(expected, inputs)

    paths = [("reference", torch.float64, 1e-9), ("reference", torch.float32, 1e-4), ("torch", torch.float64, 1e-9)]
    paths += [("torch", torch.float32, 1e-4), ("auto", torch.float32, 1e-4)]
    for backend, dtype, tolerance in paths:
        ours = copy.deepcopy(head).to(dtype)
        features = z.to(dtype).requires_grad_()
        loss = pair_loss(ours, features, pairs, gamma=gamma, focal=focal, backend=backend).loss
        assert loss.item() == pytest.approx(expected.item(), rel=tolerance)
        gradients = torch.autograd.grad(loss, [features, *ours.parameters()])
        assert_gradients_close(gradients, expected_gradients, tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0, 5.0])
def test_focal_loss_is_finite_and_right_at_extreme_logits(dtype, gamma):
    logits = torch.tensor([-1000.0, -100.0, -30.0, -1.0, 0.0, 1.0, 30.0, 100.0, 1000.0], dtype=dtype).repeat(2)
    targets = torch.tensor([0.0, 1.0], dtype=dtype).repeat_interleave(9)
    logits.requires_grad_()
    losses = focal_bce(logits, targets, gamma)
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    assert losses.isfinite().all()
    assert gradient.isfinite().all()
    wrong = (logits.detach() * (2 * targets - 1)) <= -30  # judged wrongly with certainty: ½|logit|, slope ½
    assert torch.allclose(losses[wrong], 0.5 * logits.detach()[wrong].abs())
    assert torch.allclose(gradient[wrong].abs(), torch.full_like(gradient[wrong], 0.5))


def test_gamma_zero_keeps_the_half_and_plain_has_no_weight():
    logits, targets = torch.randn(50, generator=torch.Generator().manual_seed(1)), (torch.arange(50) % 2).float()
    plain = torch.nn.functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    assert torch.allclose(focal_bce(logits, targets, 0.0), 0.5 * plain)
    assert torch.allclose(focal_bce(logits, targets, 2.0, focal=False), plain)


def test_accuracies_split_by_target_and_not_at_half_of_the_batch():
    logits, targets = torch.tensor([3.0, 2.0, -1.0, 0.0, 5.0]), torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0])
    of_all, of_positives, of_negatives = accuracies(logits, targets)
    assert (of_all.item(), of_positives.item()) == (pytest.approx(0.8), 1.0)
    assert of_negatives.item() == pytest.approx(2 / 3)


def test_parameter_names_are_those_of_the_authors_checkpoints():
    assert {name.split(".")[0] for name in RelationHead(8).state_dict()} == {"linear1", "bn1", "linear2"}
    assert RelationHead(8).linear1.weight.shape == (256, 16)
    assert RelationHead(8, aggregation="max").linear1.weight.shape == (256, 8)


def test_score_is_a_probability_leaves_the_head_alone_and_can_be_made_symmetric():
    head, generator = random_head(4, 8, "cat", 3)
    z_i, z_j = torch.randn(2, 10, 4, generator=generator)
    before = copy.deepcopy(head.state_dict())
    scores = score(head, z_i, z_j)
    assert head.training
    assert all(torch.equal(before[name], tensor) for name, tensor in head.state_dict().items())
    assert torch.allclose(scores, torch.sigmoid(copy.deepcopy(head).eval()(z_i, z_j)))
    assert not torch.allclose(scores, score(head, z_j, z_i))
    assert torch.allclose(score(head, z_i, z_j, symmetric=True), score(head, z_j, z_i, symmetric=True))


def test_mistakes_are_named():
    with pytest.raises(InputError, match="did you mean 'mean'"):
        RelationHead(4, aggregation="maen")
    for backend in ("reference", "torch", "numba"):
        with pytest.raises(ValueError, match="6 rows"):
            pair_loss(RelationHead(4), torch.randn(5, 4), roll_pairs(2, 3), backend=backend)
    with pytest.raises(InputError, match="did you mean 'numba'"):
        pair_loss(RelationHead(4), torch.randn(6, 4), roll_pairs(2, 3), backend="numbas")
    with pytest.raises(ValueError, match="6 rows"):
        relation_loss(torch.randn(5, 4), roll_pairs(2, 3), RelationHead(4))
