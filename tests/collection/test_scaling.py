"""Scaling of columns before distances are compared."""

from __future__ import annotations

import numpy as np
import pytest

from relatum.collection.scaling import whiten


def test_whitened_columns_are_uncorrelated_with_variance_one() -> None:
    draws = np.random.default_rng(1)
    mixed = draws.normal(size=(20_000, 3)) @ [[1, 0.8, 0.2], [0, 0.6, 0.4], [0, 0, 0.5]]
    values = mixed * [1, 100, 0.01] + 7
    white = whiten(values)
    assert np.cov(white.T) == pytest.approx(np.eye(3), abs=0.01)


@pytest.mark.parametrize("shape", [(1, 3), (2, 19), (5, 19), (30, 1)])
def test_few_rows_and_constant_columns_stay_finite(shape: tuple[int, int]) -> None:
    values = np.random.default_rng(2).normal(size=shape)
    values[:, -1] = 3
    white = whiten(values)
    assert white.shape == shape
    assert np.isfinite(white).all()
    assert np.abs(white).max() < 10
