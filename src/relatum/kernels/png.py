"""The filters of PNG files undone: each byte was stored as its difference from bytes before it or above it."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from relatum.kernels.caching import cached_njit


@cached_njit()
def unfilter(
    lines: NDArray[np.uint8], places: NDArray[np.int64], out: NDArray[np.uint8], good: NDArray[np.bool_]
) -> None:
    """Rows of RGB bytes from filtered ones, which start with the number of their filter, for several images.

    Args:
        lines: (n, H, 1 + 3W) filtered rows of n images.
        places: (n,) the number of each image in `out`.
        out: (N, H, 3W) receives the pixels.
        good: (n,) receives False for an image with a filter that does not exist.
    """
    _, height, width = out.shape
    nothing = np.zeros(width, np.uint8)  # above the first row
    for number in range(len(places)):
        image = out[places[number]]
        good[number] = True
        for y in range(height):
            kind = lines[number, y, 0]
            if kind > 4:
                good[number] = False
                break
            line, row = lines[number, y, 1:], image[y]
            if kind == 0 or (kind == 2 and y == 0):
                row[:] = line
            elif kind == 2:
                row[:] = line + image[y - 1]  # modulo 256, as bytes
            else:
                above = image[y - 1] if y else nothing
                _undo(kind, line, above, row)


@njit(inline="always")
def _undo(kind: int, line: NDArray[np.uint8], above: NDArray[np.uint8], row: NDArray[np.uint8]) -> None:
    """Undo the filter Sub, Average or Paeth of one row; the channels are independent, and advance side by side."""
    left0 = left1 = left2 = corner0 = corner1 = corner2 = 0
    for x in range(0, len(row), 3):
        above0, above1, above2 = int(above[x]), int(above[x + 1]), int(above[x + 2])
        left0 = (int(line[x]) + _predicted(kind, left0, above0, corner0)) & 255
        left1 = (int(line[x + 1]) + _predicted(kind, left1, above1, corner1)) & 255
        left2 = (int(line[x + 2]) + _predicted(kind, left2, above2, corner2)) & 255
        row[x], row[x + 1], row[x + 2] = left0, left1, left2
        corner0, corner1, corner2 = above0, above1, above2


@njit(inline="always")
def _predicted(kind: int, left: int, above: int, corner: int) -> int:
    """What a byte is predicted from by the filters Sub, Average and Paeth."""
    if kind == 1:
        return left
    if kind == 3:
        return (left + above) // 2
    by_left, by_above, by_corner = abs(above - corner), abs(left - corner), abs(left + above - 2 * corner)
    if by_left <= by_above and by_left <= by_corner:
        return left
    return above if by_above <= by_corner else corner
