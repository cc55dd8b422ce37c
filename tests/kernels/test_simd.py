"""The vector type against numpy, in the two forms that kernels use: a `Vector` type, and a number of lanes."""

import numpy as np
import pytest
from numba import njit

from relatum.kernels.simd import Vector, absolute, load, splat, store, sum_lanes, where_less, where_positive

FINITE = Vector(16, finite=True)
f4 = np.float32


def floats(count, seed=0):
    return np.random.default_rng(seed).normal(size=count).astype(np.float32)


def test_loads_stores_and_arithmetic_of_both_kinds_of_vector():
    @njit
    def kernel(a, b, out):
        store(out, 1, load(a, 2, FINITE) * load(b, 0, FINITE) - load(a, 0, FINITE))
        store(out, 20, load(a, 1, 8) * load(b, 3, 8) + load(a, 0, 8))

    a, b, out = floats(32), floats(32, 1), np.zeros(40, np.float32)
    kernel(a, b, out)
    expected = np.zeros(40, np.float64)
    a, b = a.astype(np.float64), b.astype(np.float64)
    expected[1:17] = a[2:18] * b[:16] - a[:16]
    expected[20:28] = a[1:9] * b[3:11] + a[:8]
    assert np.allclose(out, expected, atol=1e-6)
    assert not out[[0, 17, 18, 19, *range(28, 40)]].any()  # nothing else was written


def test_scalars_take_part_in_arithmetic_on_either_side():
    @njit
    def kernel(a, x, out):
        store(out, 0, x - load(a, 0, 4) * x)
        store(out, 4, splat(x, 4) + 2)

    a, out = floats(4), np.zeros(8, np.float32)
    kernel(a, f4(3), out)
    assert np.allclose(out, [*(3 - 3 * a), 5, 5, 5, 5], atol=1e-6)


def test_vectors_of_different_types_do_not_mix():
    @njit
    def kernel(a):
        return sum_lanes(load(a, 0, 8) + load(a, 0, 4))

    with pytest.raises(Exception, match="No implementation of function"):
        kernel(floats(8))


def test_selection_absolute_value_and_sum():
    @njit
    def kernel(a, b, out):
        x, y = load(a, 0, FINITE), load(b, 0, FINITE)
        store(out, 0, where_less(x, y, x, y))
        store(out, 16, absolute(x))
        return sum_lanes(x)

    a, b, out = floats(16), floats(16, 1), np.zeros(32, np.float32)
    assert kernel(a, b, out) == pytest.approx(a.sum(), abs=1e-5)
    assert np.array_equal(out[:16], np.minimum(a, b))
    assert np.array_equal(out[16:], np.abs(a))


def test_relu_lets_nan_pass():
    @njit
    def kernel(a, out):
        x = load(a, 0, 4)
        store(out, 0, where_positive(x, x))

    out = np.zeros(4, np.float32)
    kernel(np.array([-1, np.nan, 2, -0.0], np.float32), out)
    assert np.array_equal(out, [0, np.nan, 2, 0], equal_nan=True)
