"""Linear evaluation: a linear classifier on frozen features, offline.

The protocol takes 39,100 tiny steps on CIFAR-10 (100 epochs, batch 128): as eager torch they would cost more in
dispatch than in arithmetic, so the step of softmax regression with Adam is written out on preallocated arrays. A test
compares it with `torch.nn.Linear` and `torch.optim.Adam` step by step.

Shape letters: N images, B of them in a batch, d features, C classes.
"""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from relatum import rng
from relatum.backbones import seeded
from relatum.config.protocols import LinearSettings
from relatum.errors import RelatumError
from relatum.evaluation.task import OFFLINE, Outcome, Task
from relatum.system.progress import bar

_MAX_ITER = 500  # of scikit-learn's solver
_SMALL = 10_000_000  # multiplications of a step below which threads cost more than they give
Labels = NDArray[np.int64]
Floats = NDArray[np.float32]


class SoftmaxRegression:
    """A linear classifier with its Adam state, trained by hand-written steps in float32.

    Args:
        weight: (C, d) initial weight.
        bias: (C,) initial bias.
        lr: learning rate.
        batch_size: the largest batch that `step` will see.
    """

    beta1, beta2, epsilon = 0.9, 0.999, 1e-8

    def __init__(self, weight: Floats, bias: Floats, lr: float, batch_size: int) -> None:
        classes, size = weight.shape
        # One array for weight and bias, so that Adam is one pass: column d is the bias.
        self.theta = np.concatenate([weight, bias[:, None]], 1).astype(np.float32)
        self.lr, self.steps = lr, 0
        self._first, self._second = np.zeros_like(self.theta), np.zeros_like(self.theta)
        self._gradient, self._work = np.empty_like(self.theta), np.empty_like(self.theta)
        self._x = np.ones((batch_size, size + 1), np.float32)
        self._p = np.empty((batch_size, classes), np.float32)

    def step(self, x: Floats, y: Labels, rows: Labels) -> None:
        """One step on the given rows of (N, d) features and (N,) labels: mean cross-entropy, then Adam."""
        count = len(rows)
        batch, p = self._x[:count], self._p[:count]
        batch[:, :-1] = x[rows]
        np.matmul(batch, self.theta.T, out=p)
        p -= p.max(1, keepdims=True)
        np.exp(p, out=p)
        p /= p.sum(1, keepdims=True)
        p[np.arange(count), y[rows]] -= 1.0
        p /= count
        np.matmul(p.T, batch, out=self._gradient)
        self._adam()

    def _adam(self) -> None:
        self.steps += 1
        gradient, first, second, work = self._gradient, self._first, self._second, self._work
        np.subtract(gradient, first, out=work)
        work *= np.float32(1 - self.beta1)
        first += work
        np.multiply(gradient, gradient, out=work)
        work *= np.float32(1 - self.beta2)
        second *= np.float32(self.beta2)
        second += work
        np.sqrt(second, out=work)
        work /= np.float32((1 - self.beta2**self.steps) ** 0.5)
        work += np.float32(self.epsilon)
        np.divide(first, work, out=work)
        work *= np.float32(self.lr / (1 - self.beta1**self.steps))
        self.theta -= work

    def predict(self, x: Floats) -> Labels:
        """The class of each row; of equal scores the lowest."""
        return (x @ self.theta[:, :-1].T + self.theta[:, -1]).argmax(1)


def classifier(features: int, classes: int, seed: int) -> nn.Linear:
    """A linear classifier with PyTorch's default initialisation, drawn from the seed alone."""
    with seeded(rng.PROBE, seed):
        return nn.Linear(features, classes)


def _threads(work: int) -> AbstractContextManager[Any]:
    """One BLAS thread for small products: split over two busy cores, 128 × 65 × 100 took four times as long."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1, user_api="blas") if work < _SMALL else nullcontext()


def fit(
    x: Floats,
    y: Labels,
    classes: int,
    *,
    epochs: int = LinearSettings.epochs,
    lr: float = LinearSettings.lr,
    batch_size: int = LinearSettings.batch_size,
    seed: int = 1,
    progress: bool = False,
) -> SoftmaxRegression:
    """Train a linear classifier on (N, d) features; the order of each epoch is a function of (seed, epoch)."""
    initial = classifier(x.shape[1], classes, seed)
    model = SoftmaxRegression(initial.weight.detach().numpy(), initial.bias.detach().numpy(), lr, batch_size)
    with bar("linear evaluation", epochs, show=progress) as advance, _threads(batch_size * model.theta.size):
        for epoch in range(epochs):
            order = rng.permutation(len(x), rng.PROBE, seed, epoch)
            for start in range(0, len(x), batch_size):
                model.step(x, y, order[start : start + batch_size])
            advance()
    if not np.isfinite(model.theta).all():
        raise RelatumError("the linear classifier diverged; lower its learning rate with --set lr=...")
    return model


def logistic(x: Floats, y: Labels, test_x: Floats) -> tuple[Labels, dict[str, Any]]:
    """Predictions of scikit-learn's multinomial logistic regression on the same features, for comparison.

    Features are standardised for its solver's sake, and there is no penalty: a linear classifier close to its optimum.
    """
    from sklearn.linear_model import LogisticRegression

    if (y == y[0]).all():  # which scikit-learn refuses
        return np.full(len(test_x), y[0]), {"iterations": 0, "converged": True}
    mean, spread = x.mean(0, dtype=np.float64), x.std(0, dtype=np.float64)
    spread[spread == 0] = 1.0
    model = LogisticRegression(C=np.inf, max_iter=_MAX_ITER)
    with _threads(0), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the result records whether it converged
        model.fit(((x - mean) / spread).astype(np.float32), y)
    iterations = int(np.max(model.n_iter_))
    predicted = model.predict(((test_x - mean) / spread).astype(np.float32))
    return predicted, {"iterations": iterations, "converged": iterations < _MAX_ITER}


def scores(predicted: Labels, y: Labels, names: tuple[str, ...]) -> tuple[float, dict[str, float | None]]:
    """Accuracy in percent, and that of each class (None where the test set has no image of it)."""
    right = predicted == y
    per_class: dict[str, float | None] = {}
    for number, name in enumerate(names):
        mine = right[y == number]
        per_class[name] = round(100.0 * float(mine.mean()), 4) if len(mine) else None
    return 100.0 * float(right.mean()), per_class


def run(task: Task) -> Outcome:
    """The protocol: features once, a classifier on them, the test set after the last epoch."""
    settings: LinearSettings = task.settings
    y, test_y = task.labels(task.train), task.labels(task.test)
    names = task.train.classes
    x, test_x = task.features(task.train), task.features(task.test)
    details: dict[str, Any] = {}
    if settings.solver == "logistic":
        predicted, details = logistic(x, y, test_x)
        how = {
            "optimizer": "lbfgs (scikit-learn), no penalty",
            "max_iter": _MAX_ITER,
            "reported": "optimum" if details["converged"] else "last iteration: not converged",
            "feature_scaling": "standardised",
            **dict.fromkeys(("epochs", "lr", "batch_size")),  # Adam's
        }
    else:
        model = fit(
            x,
            y,
            len(names),
            epochs=settings.epochs,
            lr=settings.lr,
            batch_size=settings.batch_size,
            seed=task.seed,
            progress=task.progress,
        )
        predicted = model.predict(test_x)
        details["train_accuracy"] = 100.0 * float((model.predict(x) == y).mean())
        how = {"optimizer": "adam", "schedule": "constant", "reported": "last epoch", "feature_scaling": "none"}
    accuracy, details["per_class"] = scores(predicted, test_y, names)
    details["classes"] = list(names)
    return Outcome(accuracy, details, {**OFFLINE, **how}, n_train=len(task.train))
