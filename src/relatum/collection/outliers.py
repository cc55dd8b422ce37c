"""Outliers: images that are far from all others, by their representations or by their colours and texture."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relatum.collection.scaling import robust_score, standardise
from relatum.collection.signatures import Statistics

NEIGHBOURS = 20  # as in scikit-learn: a group of fewer images than this counts as unusual


def outlier_scores(
    features: NDArray[np.float32], statistics: Statistics, *, neighbours: int = NEIGHBOURS
) -> NDArray[np.float64]:
    """A score per image, higher for more unusual images; ordinary ones are around 0.

    The score is the local outlier factor (Breunig et al. 2000): how much sparser the surroundings of an image are than
    those of its neighbours, in units of the usual spread. A small group of another kind is thus not all outliers. It is
    computed for representations and for statistics of colour and texture, and the larger of the two counts: a backbone
    is trained to ignore some differences, and can place noise or a blank image next to photographs.

    Args:
        features: (N, d) representations.
        statistics: (N, s) statistics (`signatures.describe`).
        neighbours: number of neighbours that an image is compared with.
    """
    scores = [robust_score(_local_outlier_factor(standardise(values), neighbours)) for values in (features, statistics)]
    return np.maximum(*scores)


def _local_outlier_factor(points: NDArray[np.float32], neighbours: int) -> NDArray[np.float64]:
    """The factor of each point; identical points count once, since their density would be infinite."""
    from sklearn.neighbors import LocalOutlierFactor

    distinct, which = np.unique(points, axis=0, return_inverse=True)
    if len(distinct) < 3:
        return np.zeros(len(points))
    model = LocalOutlierFactor(n_neighbors=min(neighbours, len(distinct) - 1), algorithm="brute").fit(distinct)
    factors: NDArray[np.float64] = -model.negative_outlier_factor_.astype(np.float64)
    return factors[which.reshape(-1)]
