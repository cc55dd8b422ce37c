"""Sixteen pixels at a time, against numpy."""

import numpy as np
from numba import njit

from relatum.kernels.pixels import PIXELS, load_pixels, pick_neighbours, store_pixels
from relatum.kernels.simd import load, store


def test_bytes_become_planes_and_planes_become_pixels():
    @njit
    def kernel(data, planes, pixels):
        red, green, blue = load_pixels(data, 5)
        store(planes, 0, red)
        store(planes, 16, green)
        store(planes, 32, blue)
        store_pixels(pixels, 1, red, green, load(planes, 32, PIXELS))

    data = np.random.default_rng(0).integers(0, 256, 64, dtype=np.uint8)
    planes, pixels = np.zeros(48, np.float32), np.zeros(50, np.float32)
    kernel(data, planes, pixels)
    assert np.array_equal(planes.reshape(3, 16), data[5:53].reshape(16, 3).T)
    assert np.array_equal(pixels[1:49], data[5:53])
    assert pixels[0] == pixels[49] == 0


def test_neighbours_are_looked_up():
    @njit
    def kernel(array, numbers, out):
        left, right = pick_neighbours(array, 3, numbers, 2)
        store(out, 0, left)
        store(out, 16, right)

    random = np.random.default_rng(0)
    array, out = random.normal(size=40).astype(np.float32), np.zeros(32, np.float32)
    numbers = random.integers(0, 31, 20).astype(np.int32)
    kernel(array, numbers, out)
    assert np.array_equal(out[:16], array[3 + numbers[2:18]])
    assert np.array_equal(out[16:], array[4 + numbers[2:18]])
