"""Arrays are read back as they were, and a header that promises too much is refused before memory is allocated."""

from __future__ import annotations

import io
import tracemalloc

import numpy as np
import pytest

from relatum.system.npy import read_array

HUGE = 2**40


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.array(["a", "längere"]),
        np.zeros((0, 4), np.uint8),
        np.float64(3.0),
    ],
)
def test_an_array_comes_back(array: np.ndarray) -> None:
    file = io.BytesIO()
    np.save(file, array)
    size = file.tell()
    file.seek(0)
    loaded = read_array(file, size, 2**20)
    np.testing.assert_array_equal(loaded, array)
    assert loaded.dtype == array.dtype
    loaded[...] = loaded  # writable


@pytest.mark.parametrize("header", [(HUGE,), (2**31, 2**31, 2**31), (-1,), (1000, 0, HUGE)])
@pytest.mark.parametrize("descr", ["<f4", "<U0", "|O"])
def test_absurd_headers_are_refused_before_memory_is_allocated(header: tuple[int, ...], descr: str) -> None:
    if 0 in header and descr != "|O":
        pytest.skip("an empty array is fine")
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": header})
    file.write(b"\0" * 64)
    file.seek(0)
    tracemalloc.start()
    with pytest.raises(ValueError, match="array"):
        read_array(file, 300, 2**20)
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_a_truncated_array_is_refused() -> None:
    file = io.BytesIO()
    np.save(file, np.arange(100))
    whole = file.getvalue()
    with pytest.raises(ValueError, match="too early"):
        read_array(io.BytesIO(whole[:-8]), len(whole), 2**20)
    with pytest.raises(ValueError, match="does not fit"):
        read_array(io.BytesIO(whole), 100, 2**20)
