from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from relatum import backbones, features, rng
from relatum.data.imageset import ImageSet
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


def test_divergence_is_reported() -> None:
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


def test_logistic_of_a_single_class() -> None:
    """A folder with one image of a class: the held-out part may leave one class to learn from."""
    x, _ = toy(20)
    predicted, details = linear.logistic(x, np.full(20, 3), x[:5])
    assert predicted.tolist() == [3] * 5
    assert details["converged"]


def test_scores_per_class() -> None:
    accuracy, per_class = linear.scores(np.array([0, 1, 1, 0]), np.array([0, 1, 0, 0]), ("a", "b", "c"))
    assert accuracy == 75.0
    assert per_class == {"a": pytest.approx(66.6667), "b": 100.0, "c": None}


def test_cached_features_equal_the_uncached_protocol(make_images: Callable[..., ImageSet]) -> None:
    """The plain protocol: the frozen backbone sees every batch again in every epoch, torch does the rest."""
    backbone = backbones.build("conv4", seed=1).eval().requires_grad_(False)
    train, test = make_images(200), make_images(80, seed=1)
    probe = linear.classifier(64, 4, seed=1)
    optimizer = torch.optim.Adam(probe.parameters(), lr=1e-2)
    for epoch in range(10):
        order = rng.permutation(200, rng.PROBE, 1, epoch)
        for start in range(0, 200, 32):
            part = train.subset(order[start : start + 32])
            z = backbone(features.normalise(part.images, part.mean, part.std))
            loss = torch.nn.functional.cross_entropy(probe(z), torch.from_numpy(part.labels))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    z, test_z = (features.extract(backbone, images) for images in (train, test))
    model = linear.fit(z, train.labels, 4, epochs=10, lr=1e-2, batch_size=32, seed=1)
    np.testing.assert_allclose(model.theta[:, :-1], probe.weight.detach().numpy(), atol=1e-3)
    with torch.no_grad():
        uncached = probe(torch.from_numpy(test_z)).argmax(1).numpy()
    assert abs((uncached == test.labels).mean() - (model.predict(test_z) == test.labels).mean()) < 0.003
