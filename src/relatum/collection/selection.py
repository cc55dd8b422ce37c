"""A diverse subset: images that cover the collection, for labelling or for a first look."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relatum.collection.scaling import standardise


def diverse_subset(features: NDArray[np.float32], number: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The greedy k-centre selection (Gonzalez 1985): each image is the one farthest from all those before it.

    It starts with the image nearest to the mean. The largest distance from any image to the subset is at most twice
    that of the best subset of the same size. Any first part of the result is the result for a smaller number.

    Args:
        features: (N, d) representations.
        number: size of the subset; at most N.

    Returns:
        Image numbers in order of selection, and for each the largest distance from any image to the subset up to it.
    """
    z = standardise(features).astype(np.float64)
    number = min(number, len(z))
    selected = np.empty(number, np.int64)
    radius = np.empty(number)
    distance = np.full(len(z), np.inf)
    latest = int(np.argmin(np.einsum("nd,nd->n", z, z)))
    for i in range(number):
        selected[i] = latest
        offsets = z - z[latest]
        distance = np.minimum(distance, np.einsum("nd,nd->n", offsets, offsets))
        distance[selected[: i + 1]] = -1.0  # never twice, even among identical images
        latest = int(np.argmax(distance))
        radius[i] = np.sqrt(max(0.0, float(distance[latest])))
    return selected, radius
