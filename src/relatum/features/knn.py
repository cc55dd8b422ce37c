"""The vote of the k nearest neighbours: how good a representation is with no training at all (not in the paper)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relatum.config.protocols import KNNSettings
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
    """The class that the k nearest training images vote for; a tie goes to the lowest class.

    With `metric="euclidean"` the similarity is −distance. Neighbours at equal distance are taken in the order of index.
    """
    k = min(k, len(train_features))
    distances, indices = nearest(test_features, train_features, k, metric=metric)
    # Weights relative to the nearest neighbour's: the same votes, and far ones cannot all underflow to 0.
    weights = np.exp((distances[:, :1] - distances) / temperature) if weighting == "exp" else None
    return knn_vote(train_labels[indices], weights)


def knn_vote(neighbour_labels: Labels, weights: NDArray[np.float64] | None = None) -> Labels:
    """The class with most votes in each row of (N, k) labels; all votes weigh 1 without `weights`.

    A tie goes to the lowest class.
    """
    rows = np.arange(len(neighbour_labels))
    votes = np.zeros((len(neighbour_labels), int(neighbour_labels.max()) + 1))
    for j in range(neighbour_labels.shape[1]):
        votes[rows, neighbour_labels[:, j]] += 1.0 if weights is None else weights[:, j]
    return votes.argmax(1)


def knn_accuracy(
    train_features: NDArray[np.float32],
    train_labels: Labels,
    test_features: NDArray[np.float32],
    test_labels: Labels,
    *,
    k: int = KNNSettings.k,
) -> float:
    """Accuracy of `knn_predict` in percent."""
    predicted = knn_predict(train_features, train_labels, test_features, k=k)
    return 100.0 * float((predicted == test_labels).mean())
