"""The ten outlines of `shapes` as signed distances, negative inside, scaled to an area of 2."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

Field = NDArray[np.float32]
Points = list[tuple[float, float]]

_AREA = 2.0


def _regular(*radii: float, corners: int) -> Points:
    """Corners on circles whose radii take turns, the first one at the top."""
    turn = np.arange(corners) * 2 * np.pi / corners
    return [(radii[i % len(radii)] * np.sin(a), -radii[i % len(radii)] * np.cos(a)) for i, a in enumerate(turn)]


def _heart() -> Points:
    t = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    return list(
        zip(16 * np.sin(t) ** 3, -(13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t)), strict=True)
    )


def _moon() -> Points:
    outer = np.linspace(-2.3, 2.3, 16)  # angles of a circle's arc from one horn to the other, open to the right
    horn_x, horn_y = -np.cos(2.3), np.sin(2.3)
    centre = 0.75
    radius = np.hypot(horn_x - centre, horn_y)
    end = np.arctan2(horn_y, centre - horn_x)
    inner = np.linspace(end, -end, 10)[1:-1]
    arc = [(-np.cos(a), np.sin(a)) for a in outer]
    return arc + [(centre - radius * np.cos(a), radius * np.sin(a)) for a in inner]


_T = 0.36  # half the width of the cross's bars
_POLYGONS: dict[str, Points] = {
    "square": [(-1, -1), (1, -1), (1, 1), (-1, 1)],
    "triangle": _regular(1.0, corners=3),
    "star": _regular(1.0, 0.42, corners=10),
    "cross": [
        (-_T, -1),
        (_T, -1),
        (_T, -_T),
        (1, -_T),
        (1, _T),
        (_T, _T),
        (_T, 1),
        (-_T, 1),
        (-_T, _T),
        (-1, _T),
        (-1, -_T),
        (-_T, -_T),
    ],
    "heart": _heart(),
    "moon": _moon(),
    "arrow": [(0, -1), (0.85, -0.1), (0.32, -0.1), (0.32, 1), (-0.32, 1), (-0.32, -0.1), (-0.85, -0.1)],
    "hourglass": [(-0.8, -1), (0.8, -1), (0.15, 0), (0.8, 1), (-0.8, 1), (-0.15, 0)],
}
_DISC = float(np.sqrt(_AREA / np.pi))
_HOLE = 0.55  # of the ring's radius
OUTLINES: tuple[str, ...] = ("disc", "ring", *_POLYGONS)


@cache
def _corners(name: str) -> NDArray[np.float32]:
    """The corners of a polygon, its centre of mass at the origin and its area 2."""
    points = np.array(_POLYGONS[name], np.float64)
    after = np.roll(points, -1, 0)
    cross = points[:, 0] * after[:, 1] - after[:, 0] * points[:, 1]
    area = cross.sum() / 2
    centre = ((points + after) * cross[:, None]).sum(0) / (6 * area)
    return ((points - centre) * np.sqrt(_AREA / abs(area))).astype(np.float32)


def extent(name: str) -> float:
    """The largest distance of an outline from its centre."""
    if name in ("disc", "ring"):
        return _DISC if name == "disc" else _DISC / float(np.sqrt(1 - _HOLE**2))
    return float(np.hypot(*_corners(name).T).max())


def distance(name: str, x: Field, y: Field) -> Field:
    """The signed distance of points from an outline."""
    if name == "disc":
        return np.hypot(x, y) - np.float32(_DISC)
    if name == "ring":
        outer = _DISC / np.sqrt(1 - _HOLE**2)
        return np.abs(np.hypot(x, y) - np.float32(outer * (1 + _HOLE) / 2)) - np.float32(outer * (1 - _HOLE) / 2)
    corners = _corners(name)
    nearest = np.full(np.broadcast(x, y).shape, np.inf, np.float32)
    inside = np.zeros(nearest.shape, np.bool_)
    for (ax, ay), (bx, by) in zip(corners, np.roll(corners, -1, 0), strict=True):
        ex, ey = bx - ax, by - ay
        wx, wy = x - ax, y - ay
        along = np.clip((wx * ex + wy * ey) / (ex * ex + ey * ey), 0, 1)
        nearest = np.minimum(nearest, (wx - along * ex) ** 2 + (wy - along * ey) ** 2)
        crosses = (y < ay) != (y < by)
        inside ^= crosses & ((wx * ey - wy * ex < 0) == (ey > 0))
    return np.sqrt(nearest) * np.where(inside, -1, 1).astype(np.float32)
