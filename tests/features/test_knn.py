from __future__ import annotations

import numpy as np
import pytest

from relatum.features.knn import knn_accuracy, knn_predict


def brute(x: np.ndarray, y: np.ndarray, q: np.ndarray, k: int, metric: str, uniform: bool) -> np.ndarray:
    """One query and one neighbour at a time."""
    answers = []
    for row in q.astype(np.float64):
        if metric == "cosine":
            s = [float(row @ g) / (np.linalg.norm(row) * np.linalg.norm(g)) for g in x.astype(np.float64)]
        else:
            s = [-float(np.linalg.norm(row - g)) for g in x.astype(np.float64)]
        near = sorted(range(len(x)), key=lambda i: (-s[i], i))[:k]
        votes: dict[int, float] = {}
        for i in near:
            votes[int(y[i])] = votes.get(int(y[i]), 0.0) + (1.0 if uniform else np.exp(s[i] / 0.07))
        answers.append(min(votes, key=lambda c: (-votes[c], c)))
    return np.array(answers)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("weighting", ["exp", "uniform"])
@pytest.mark.parametrize("k", [1, 5, 20])
def test_equals_brute_force(metric: str, weighting: str, k: int) -> None:
    random = np.random.default_rng(k)
    x, q = (random.normal(size=(n, 6)).astype(np.float32) for n in (90, 40))
    y = random.integers(0, 5, 90)
    actual = knn_predict(x, y, q, k=k, metric=metric, weighting=weighting)
    np.testing.assert_array_equal(actual, brute(x, y, q, k, metric, weighting == "uniform"))


def test_equal_votes_go_to_the_lowest_class() -> None:
    x = np.array([[1, 0], [0, 1]], np.float32)
    assert knn_predict(x, np.array([3, 1]), np.array([[1, 1]], np.float32), k=2).tolist() == [1]


def test_few_training_images() -> None:
    x = np.eye(3, dtype=np.float32)
    y = np.array([0, 1, 2])
    assert knn_accuracy(x, y, x, y, k=20) == 100.0


def test_far_neighbours_still_vote() -> None:
    """exp(−distance / 0.07) alone is 0 in float64 from a distance of 53 on."""
    x = np.array([[0.0], [1000.0], [1001.0]], np.float32)
    actual = knn_predict(x, np.array([0, 1, 1]), np.array([[2000.0]], np.float32), k=3, metric="euclidean")
    assert actual.tolist() == [1]
