"""k-nearest-neighbours: how good a representation is with no training at all (not in the paper)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relatum.config.protocols import KNNSettings
from relatum.evaluation.linear import scores
from relatum.evaluation.task import OFFLINE, Outcome, Task
from relatum.features.neighbours import nearest

Labels = NDArray[np.int64]


def knn_predict(
    train_features: NDArray[np.float32],
    train_labels: Labels,
    test_features: NDArray[np.float32],
    *,
    k: int = KNNSettings.k,
    metric: str = KNNSettings.metric,
    weighting: str = KNNSettings.weighting,
    temperature: float = KNNSettings.temperature,
) -> Labels:
    """The class that the k nearest training images vote for; equal votes go to the lowest class.

    With `metric="euclidean"` the similarity is −distance. Neighbours at equal distance are taken in the order of index.
    """
    k = min(k, len(train_features))
    distances, indices = nearest(test_features, train_features, k, metric=metric)
    # Weights relative to the nearest neighbour's: the same votes, and far ones cannot all underflow to 0.
    weights = np.exp((distances[:, :1] - distances) / temperature) if weighting == "exp" else None
    return knn_vote(train_labels[indices], weights)


def knn_vote(voters: Labels, weights: NDArray[np.float64] | None = None) -> Labels:
    """The class with most votes in each row of (N, k) labels, each weighing 1 or as given; the lowest of equals."""
    rows = np.arange(len(voters))
    votes = np.zeros((len(voters), int(voters.max()) + 1))
    for j in range(voters.shape[1]):
        votes[rows, voters[:, j]] += 1.0 if weights is None else weights[:, j]
    return votes.argmax(1)


def knn_accuracy(
    train_features: NDArray[np.float32],
    train_labels: Labels,
    test_features: NDArray[np.float32],
    test_labels: Labels,
    *,
    k: int = KNNSettings.k,
    metric: str = KNNSettings.metric,
    weighting: str = KNNSettings.weighting,
    temperature: float = KNNSettings.temperature,
) -> float:
    """Accuracy in percent of `knn_predict`."""
    predicted = knn_predict(
        train_features, train_labels, test_features, k=k, metric=metric, weighting=weighting, temperature=temperature
    )
    return 100.0 * float((predicted == test_labels).mean())


def run(task: Task) -> Outcome:
    """The protocol: training images vote on test images."""
    chosen: KNNSettings = task.settings
    y, test_y = task.labels(task.train), task.labels(task.test)
    x, test_x = task.features(task.train), task.features(task.test)
    options = {name: getattr(chosen, name) for name in ("k", "metric", "weighting", "temperature")}
    names = task.train.classes
    accuracy, per_class = scores(knn_predict(x, y, test_x, **options), test_y, names)
    details = {"per_class": per_class, "classes": list(names), "k": min(chosen.k, len(x))}
    return Outcome(accuracy, details, dict(OFFLINE), n_train=len(x))
