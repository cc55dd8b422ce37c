"""`sample`: the random parameters of a whole batch of views in one vectorised call. No torch here.

A row's parameters are a pure function of (seed, epoch, sample index, view number): they do not depend on the batch,
on the number of views or on the number of processes. Each kind of draw has its own fixed counter (the table below),
so a policy without one of the transformations draws the same numbers for the others.

Shape letters: M images, K views of each, V = K·M rows; row k·M + m is view k of image m.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relatum import rng
from relatum.views.policies import Policy

if TYPE_CHECKING:
    from relatum.views.tensor import TensorParams

Keys = NDArray[np.uint64]

# The counter of each draw. The crop takes four per try, from CROP on.
FLIP, JITTER, FACTORS, ORDER, GRAY, TURN = 0, 1, 2, 6, 7, 8
AFFINE, AFFINE_PARAMS, CUTOUT, CUTOUT_CORNER, CROP = 9, 10, 15, 16, 32
# All orders of the four jitter steps: 0 brightness, 1 contrast, 2 saturation, 3 hue.
_ORDERS = np.array([p for p in np.ndindex(4, 4, 4, 4) if len(set(p)) == 4], dtype=np.int8)


@dataclass(frozen=True, eq=False)
class ViewParams:
    """The random parameters of V views: a struct of arrays with one row per view.

    Attributes:
        box: (V, 4) int32 y0, x0, height, width of the crop in source pixels; pixels outside the image are zero.
        flip: (V,) bool, horizontal.
        affine: (V, 6) float32 a, b, c, d, e, f: the output pixel at (x, y) from the view's centre, in pixels, is read
            at (a·x + b·y + c, d·x + e·y + f) from the centre.
        has_affine: (V,) bool.
        order: (V, 4) int8 jitter steps in the order in which they are applied; -1 for none.
        factors: (V, 4) float32 brightness, contrast, saturation factors and the hue shift.
        gray: (V,) bool.
        turns: (V,) int8 quarter turns counter-clockwise, 0 to 3.
        cutout: (V, 4) int32 y0, x0, height, width in the finished view; height 0 for none.
        margin: how far boxes may reach outside the image, in source pixels.
    """

    box: NDArray[np.int32]
    flip: NDArray[np.bool_]
    affine: NDArray[np.float32]
    has_affine: NDArray[np.bool_]
    order: NDArray[np.int8]
    factors: NDArray[np.float32]
    gray: NDArray[np.bool_]
    turns: NDArray[np.int8]
    cutout: NDArray[np.int32]
    margin: int = 0

    def __len__(self) -> int:
        return len(self.box)

    def rows(self, index: Any) -> ViewParams:
        """The rows that a slice, a mask or an array of numbers selects."""
        arrays = {name: getattr(self, name)[index] for name in ARRAYS}
        return dataclasses.replace(self, **arrays)

    def to(self, device: Any = "cpu") -> TensorParams:
        """The same parameters as tensors on a device, for `relatum.views.tensor`."""
        from relatum.views.tensor import TensorParams

        return TensorParams.of(self, device)


ARRAYS = tuple(f.name for f in dataclasses.fields(ViewParams) if f.name != "margin")


def sample(
    policy: Policy,
    *,
    seed: int,
    epoch: int,
    indices: NDArray[Any],
    views: int,
    height: int,
    width: int,
    pad: int,
    side: int,
    first: int = 0,
) -> ViewParams:
    """Draw the parameters of `views` views of each sample.

    Args:
        policy: the chain of transformations.
        seed: the run's seed.
        epoch: the epoch.
        indices: (M,) numbers of the samples in the training set.
        views: K, the number of views of each image.
        height: height of the source images.
        width: width of the source images.
        pad: zero padding of the padded crop, in source pixels.
        side: height and width of the views.
        first: number of the first view; a second set of views (multi-crop) continues the numbers of the first.

    Returns:
        K·M rows; row k·M + m is view k of sample m.
    """
    indices = np.asarray(indices)
    numbers = np.arange(first, first + views)
    keys = rng.key(rng.VIEW, seed, epoch, indices[None, :], (numbers // policy.shared)[:, None]).reshape(-1)
    count = len(keys)
    order, factors = _jitter(policy, keys)
    affine, has_affine = _affine(policy, keys, side)
    return ViewParams(
        box=_boxes(policy, keys, height, width, pad),
        flip=_chance(policy.flip_p, keys, FLIP),
        affine=affine,
        has_affine=has_affine,
        order=order,
        factors=factors,
        gray=_chance(policy.gray_p, keys, GRAY),
        turns=_turns(policy, keys, np.repeat(numbers, count // max(views, 1))),
        cutout=_cutout(policy, keys, side),
        margin=pad if policy.crop == "padded" else 0,
    )


def _chance(probability: float, keys: Keys, draw: int) -> NDArray[np.bool_]:
    if probability <= 0:
        return np.zeros(len(keys), bool)
    return rng.uniform(keys, [draw])[:, 0] < probability


def _between(bounds: tuple[float, float], u: NDArray[np.float64]) -> NDArray[np.float64]:
    return bounds[0] + (bounds[1] - bounds[0]) * u


def _integer(u: NDArray[np.float64], count: Any) -> NDArray[np.int32]:
    """A uniform integer below `count` from a uniform number below 1."""
    return (u * count).astype(np.int32)


def _boxes(policy: Policy, keys: Keys, height: int, width: int, pad: int) -> NDArray[np.int32]:
    box = np.empty((len(keys), 4), np.int32)
    box[:] = (0, 0, height, width)
    if policy.crop == "padded":
        box[:, :2] = _integer(rng.uniform(keys, [CROP, CROP + 1]), 2 * pad + 1) - pad
    elif policy.crop == "resized":
        box[:] = _central(policy, height, width)
        open_rows = np.arange(len(keys))
        for number in range(policy.tries):
            if not len(open_rows):
                break
            tried, fits = _try_crop(policy, keys[open_rows], number, height, width)
            box[open_rows[fits]] = tried[fits]
            open_rows = open_rows[~fits]
    return box


def _try_crop(
    policy: Policy, keys: Keys, number: int, height: int, width: int
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """One try of the random resized crop for every key: boxes, and which of them lie within the image."""
    u = rng.uniform(keys, CROP + 4 * number + np.arange(4))
    area = height * width * _between(policy.area, u[:, 0])
    ratio = np.exp(_between((np.log(policy.ratio[0]), np.log(policy.ratio[1])), u[:, 1]))
    w = np.rint(np.sqrt(area * ratio))
    h = np.rint(np.sqrt(area / ratio))
    fits = (w > 0) & (w <= width) & (h > 0) & (h <= height)
    tried = np.stack([_integer(u[:, 2], height - h + 1), _integer(u[:, 3], width - w + 1), h, w], 1)
    return tried.astype(np.int32), fits


def _central(policy: Policy, height: int, width: int) -> tuple[int, int, int, int]:
    """The largest central crop within the ratio bounds: the fallback when all tries fail."""
    h, w = height, width
    if width / height < policy.ratio[0]:
        h = round(width / policy.ratio[0])
    elif width / height > policy.ratio[1]:
        w = round(height * policy.ratio[1])
    return (height - h) // 2, (width - w) // 2, h, w


def _jitter(policy: Policy, keys: Keys) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    if policy.jitter_p <= 0:
        return np.full((len(keys), 4), -1, np.int8), np.zeros((len(keys), 4), np.float32)
    u = rng.uniform(keys, [JITTER, ORDER, FACTORS, FACTORS + 1, FACTORS + 2, FACTORS + 3])
    order = _ORDERS[_integer(u[:, 1], len(_ORDERS))]
    order[u[:, 0] >= policy.jitter_p] = -1
    low, high = np.array([policy.brightness, policy.contrast, policy.saturation, policy.hue]).T
    return order, (low + (high - low) * u[:, 2:]).astype(np.float32)


def _turns(policy: Policy, keys: Keys, numbers: NDArray[np.int64]) -> NDArray[np.int8]:
    if policy.turn == "view":
        return (numbers % 4).astype(np.int8)
    if policy.turn == "random":
        return _integer(rng.uniform(keys, [TURN])[:, 0], 4).astype(np.int8)
    return np.zeros(len(keys), np.int8)


def _affine(policy: Policy, keys: Keys, side: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """The inverse of p ↦ scale · rotation · shear · p + shift, with p from the centre of the view."""
    affine = np.zeros((len(keys), 6), np.float32)
    affine[:, 0] = affine[:, 4] = 1
    has_affine = _chance(policy.affine_p, keys, AFFINE)
    if not has_affine.any():
        return affine, has_affine
    u = rng.uniform(keys[has_affine], AFFINE_PARAMS + np.arange(5))
    angle = np.deg2rad(_between(policy.degrees, u[:, 0]))
    scale = _between(policy.scale, u[:, 1])
    shear = np.tan(np.deg2rad(_between(policy.shear, u[:, 2])))
    shift_x, shift_y = (_between(policy.translate, u[:, 3:]) * side).T
    sin, cos = np.sin(angle) / scale, np.cos(angle) / scale
    a, b, d, e = cos + shear * sin, sin - shear * cos, -sin, cos
    affine[has_affine] = np.stack([a, b, -(a * shift_x + b * shift_y), d, e, -(d * shift_x + e * shift_y)], 1)
    return affine, has_affine


def _cutout(policy: Policy, keys: Keys, side: int) -> NDArray[np.int32]:
    cutout = np.zeros((len(keys), 4), np.int32)
    has_cutout = _chance(policy.cutout_p, keys, CUTOUT)
    size = min(side, round(side * policy.cutout_area**0.5))
    cutout[has_cutout, :2] = _integer(
        rng.uniform(keys[has_cutout], [CUTOUT_CORNER, CUTOUT_CORNER + 1]), side - size + 1
    )
    cutout[has_cutout, 2:] = size
    return cutout
