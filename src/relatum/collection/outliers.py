"""Outliers: images that are far from all others, by their representations or by their colours and texture."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relatum.collection.scaling import robust_score, standardise
from relatum.collection.signatures import SMOOTHNESS, Statistics
from relatum.features.neighbours import nearest

_NEIGHBOURS = 10  # k: a group of at most this many images counts as unusual


def outlier_scores(features: NDArray[np.float32], statistics: Statistics) -> NDArray[np.float64]:
    """A score per image, higher for more unusual images; ordinary ones are around 0.

    The score is the distance to the k-th nearest image (Ramaswamy et al. 2000), in units of the usual spread.
    Representations, statistics of colour and texture, and smoothness count equally: a backbone is trained to ignore
    some differences, and can place noise or a blank image next to photographs. A colour gradient differs from
    photographs and drawings only by its smoothness, which as two of 16 statistics would hardly count. Copies of an
    image count once.

    The local outlier factor, which compares an image with the surroundings of its neighbours, was tried first: where a
    folder is sparse (drawings among photographs), what lies there looked ordinary to it. The choice between the two,
    and k, were made on one folder with five planted images and are untested on others.

    Args:
        features: (N, d) representations.
        statistics: (N, s) statistics (`signatures.describe`).
    """
    parts = (features, statistics[:, :-SMOOTHNESS], statistics[:, -SMOOTHNESS:])
    blocks = [standardise(values) / np.sqrt(max(values.shape[1], 1)) for values in parts]
    distinct, which = np.unique(np.concatenate(blocks, axis=1), axis=0, return_inverse=True)
    if len(distinct) < 3:
        return np.zeros(len(features))
    distances, _ = nearest(
        distinct, distinct, min(_NEIGHBOURS, len(distinct) - 1), exclude=np.arange(len(distinct), dtype=np.int64)
    )
    return robust_score(distances[:, -1])[which.reshape(-1)]
