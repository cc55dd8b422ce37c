from __future__ import annotations

import numpy as np
import pytest
import torch

from relatum import rng
from relatum.errors import RelatumError
from relatum.evaluation import linear


def toy(n: int = 300, d: int = 7, classes: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    y = random.integers(0, classes, n)
    centres = np.random.default_rng(99).normal(size=(classes, d))
    return (centres[y] + 0.7 * random.normal(size=(n, d))).astype(np.float32), y


def test_every_step_equals_torch() -> None:
    x, y = toy()
    reference = linear.classifier(7, 4, seed=5)
    model = linear.SoftmaxRegression(
        reference.weight.detach().numpy().copy(), reference.bias.detach().numpy().copy(), 1e-2, 32
    )
    optimizer = torch.optim.Adam(reference.parameters(), lr=1e-2)
    for step in range(120):
        order = rng.permutation(len(x), step)[: 32 if step % 10 else 13]  # short batches too
        loss = torch.nn.functional.cross_entropy(reference(torch.from_numpy(x[order])), torch.from_numpy(y[order]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.step(x, y, order)
        np.testing.assert_allclose(model.theta[:, :-1], reference.weight.detach().numpy(), atol=2e-6)
        np.testing.assert_allclose(model.theta[:, -1], reference.bias.detach().numpy(), atol=2e-6)


def test_large_features_do_not_overflow() -> None:
    x, y = toy()
    with np.errstate(over="raise", invalid="raise"):
        model = linear.fit(x * 1e4, y, 4, epochs=2)
    assert np.isfinite(model.theta).all()


def test_learns_and_is_a_function_of_the_seed_alone() -> None:
    x, y = toy(800)
    test_x, test_y = toy(400, seed=1)
    one, again, other = (linear.fit(x, y, 4, epochs=30, lr=1e-2, seed=s) for s in (1, 1, 2))
    assert one.theta.tobytes() == again.theta.tobytes() != other.theta.tobytes()
    assert (one.predict(test_x) == test_y).mean() > 0.85


def test_the_callers_random_state_is_untouched() -> None:
    x, y = toy(50)
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    linear.fit(x, y, 4, epochs=1)
    assert torch.equal(torch.rand(3), expected)


def test_divergence_is_said() -> None:
    x, y = toy(50)
    x[3] = np.inf
    with pytest.raises(RelatumError, match="diverged"), np.errstate(all="ignore"):
        linear.fit(x, y, 4, epochs=1)


def test_logistic_is_at_least_as_good_on_the_training_set() -> None:
    x, y = toy(400)
    predicted, details = linear.logistic(x, y, x)
    model = linear.fit(x, y, 4, epochs=100)
    assert details["converged"]
    assert (predicted == y).mean() >= (model.predict(x) == y).mean() - 0.02


def test_logistic_bears_a_constant_feature() -> None:
    x, y = toy(100)
    x[:, 2] = 3
    predicted, _ = linear.logistic(x, y, x)
    assert len(predicted) == 100


def test_scores_per_class() -> None:
    accuracy, per_class = linear.scores(np.array([0, 1, 1, 0]), np.array([0, 1, 0, 0]), ("a", "b", "c"))
    assert accuracy == 75.0
    assert per_class == {"a": pytest.approx(66.6667), "b": 100.0, "c": None}
