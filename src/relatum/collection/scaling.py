"""Scaling of columns to a common scale, before distances are compared."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def standardise(values: NDArray[np.floating]) -> Floats:
    """Columns with mean 0 and standard deviation 1; columns without variation become 0."""
    centred = np.asarray(values, np.float64)
    centred = centred - centred.mean(0)
    spread = centred.std(0)
    return np.divide(centred, spread, out=np.zeros_like(centred), where=spread > 1e-9 * max(1.0, spread.max())).astype(
        np.float32
    )


def whiten(values: NDArray[np.floating]) -> Floats:
    """Columns with mean 0, rotated and scaled so that they have variance 1 and no correlation.

    The covariance of few rows is uncertain: it is shrunk towards a multiple of the identity, by half for as many
    rows as columns.
    """
    centred = standardise(values).astype(np.float64)
    rows, columns = centred.shape
    shrinkage = columns / (columns + rows)
    covariance = centred.T @ centred / max(rows, 1)
    level = max(float(np.trace(covariance)) / max(columns, 1), 1e-12)
    variances, axes = np.linalg.eigh((1 - shrinkage) * covariance + shrinkage * level * np.eye(columns))
    return (centred @ axes / np.sqrt(variances)).astype(np.float32)


def robust_score(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """Distance above the median in units of the usual spread (quartiles), so that a few extremes change nothing."""
    low, middle, high = np.percentile(values, [25, 50, 75])
    return np.asarray((values - middle) / max(float(high - low), 1e-12), np.float64)
