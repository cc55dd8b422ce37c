"""`shapes`: a dataset made in code, so that the whole method can be tried where nothing can be downloaded.

Ten shapes of varying place, size, slant and texture before cluttered backgrounds, upright and lit from above (so that
predicting a rotation makes sense, as it does for photographs). All ten cover the same area on average and every colour is
drawn without regard to the class: a learner who looks at colours alone stays at chance. Every picture is a pure function
of the seed, its split and its number.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relatum import rng
from relatum.data import cache
from relatum.data.imageset import ImageSet
from relatum.data.outlines import OUTLINES, distance
from relatum.registry import DATASETS

CLASSES = OUTLINES
SIDE = 32
SIZES = {"train": 10_000, "test": 2_000}
_SEED = 2020  # the year of the paper; the dataset is one dataset, not one per run
_VERSION = 1  # raise it when the same seed gives other pixels
_CHUNK = 500  # pictures drawn together: arrays of 500 x 1024 float32 stay in the processor's cache

Field = NDArray[np.float32]
Pixels = NDArray[np.uint8]
_STROKES, _BLOBS = 4, 4


def load(name: str, split: str, root: Path | None = None) -> ImageSet:
    """The `train` or `test` pictures; drawn once and kept in the cache. `root` is not used: nothing is read from there."""
    row = DATASETS[name]
    count = SIZES[split]
    entry = cache.entry(
        "shapes",
        f"{split}-{count}-v{_VERSION}",
        lambda work: _write(work, split, count),
        valid=lambda place: _valid(place, count),
    )
    images = np.load(entry / "images.npy", mmap_mode="r")
    labels = np.load(entry / "labels.npy")
    return ImageSet(name, split, images, labels, CLASSES, row.mean, row.std, row.pad)


def _write(work: Path, split: str, count: int) -> None:
    images, labels = draw(count, seed=_SEED, split=split)
    np.save(work / "images.npy", images)
    np.save(work / "labels.npy", labels)
    (work / "meta.json").write_text(json.dumps({"seed": _SEED, "classes": CLASSES}))
    for file in work.iterdir():
        cache.sync(file)


def _valid(place: Path, count: int) -> bool:
    try:
        return np.load(place / "images.npy", mmap_mode="r").shape[0] == len(np.load(place / "labels.npy")) == count
    except (OSError, ValueError):
        return False


def draw(count: int, *, seed: int, split: str = "train") -> tuple[Pixels, NDArray[np.int64]]:
    """Draw `count` pictures and their labels; classes are balanced and in random order."""
    part = list(SIZES).index(split)
    labels = rng.permutation(count, rng.SHAPES, seed, part, -1) % len(CLASSES)
    images = np.empty((count, SIDE, SIDE, 3), np.uint8)
    for start in range(0, count, _CHUNK):
        rows = slice(start, min(start + _CHUNK, count))
        keys = rng.key(rng.SHAPES, seed, part, np.arange(count)[rows])
        images[rows] = _pictures(_Draws(keys), labels[rows])
    return images, labels


class _Draws:
    """Uniform numbers for each picture, taken one after another."""

    def __init__(self, keys: NDArray[np.uint64]) -> None:
        self._keys, self._next = keys, 0

    def __len__(self) -> int:
        return len(self._keys)

    def take(self, low: float, high: float, *shape: int) -> Field:
        """Numbers in [low, high) of shape (pictures, *shape)."""
        number = int(np.prod(shape)) if shape else 1
        draws = rng.uniform(self._keys, np.arange(self._next, self._next + number))
        self._next += number
        return (low + (high - low) * draws).astype(np.float32).reshape(len(self._keys), *shape)


def _pictures(draws: _Draws, labels: NDArray[np.int64]) -> Pixels:
    """Backgrounds, clutter, a shadow, the shape with its texture and light, and a little noise, one over the other."""
    centres = (np.arange(SIDE, dtype=np.float32) + 0.5) / SIDE * 2 - 1
    x, y = np.broadcast_to(centres, (1, SIDE, SIDE)), np.broadcast_to(centres[:, None], (1, SIDE, SIDE))
    ground, paint = _colours(draws)
    picture = _background(draws, x, y, ground)
    picture = _clutter(draws, x, y, picture)

    size = draws.take(0.42, 0.66)
    reach = 0.92 - size
    cx, cy = draws.take(-1, 1) * reach, draws.take(-1, 1) * reach
    slant, stretch = draws.take(-0.2, 0.2), np.exp(draws.take(-0.15, 0.15))
    depth = np.empty((len(draws), SIDE, SIDE), np.float32)
    shade = np.empty_like(depth)
    for label, name in enumerate(CLASSES):
        rows = labels == label
        frame = [v[rows, None, None] for v in (cx, cy, size, slant, stretch)]
        depth[rows] = _distance(name, x, y, frame)
        shade[rows] = _distance(name, x, y - 0.14, frame)
    pixel = 2 / SIDE
    shadow = np.clip(0.5 - shade / (4 * pixel), 0, 1) * draws.take(0.25, 0.5)[:, None, None]
    picture = picture * (1 - shadow[..., None])
    cover = np.clip(0.5 - depth / pixel, 0, 1)[..., None]
    light = 1 - draws.take(0.15, 0.35)[:, None, None] * (y - cy[:, None, None])
    texture = _texture(draws, x - cx[:, None, None], y - cy[:, None, None])[..., None]
    surface = (paint[:, 0, None, None] * (1 - texture) + paint[:, 1, None, None] * texture) * light[..., None]
    picture = picture * (1 - cover) + surface * cover
    picture = picture + draws.take(-0.04, 0.04, SIDE, SIDE, 3)
    return np.rint(np.clip(picture, 0, 1) * 255).astype(np.uint8)


def _distance(name: str, x: Field, y: Field, frame: list[Any]) -> Field:
    """Signed distance of every pixel from an outline that is moved, scaled, slanted and stretched."""
    cx, cy, size, slant, stretch = frame
    u, v = (x - cx) / size, (y - cy) / size
    cos, sin = np.cos(slant), np.sin(slant)
    u, v = (cos * u + sin * v) * stretch, (cos * v - sin * u) / stretch
    return distance(name, u, v) * size


def _colours(draws: _Draws) -> tuple[Field, Field]:
    """Two colours of the ground and two of the shape, whose lightness is at least 0.25 apart."""
    hues, grey = draws.take(0, 1, 4), draws.take(0.15, 0.9, 4)
    dark = draws.take(0.22, 0.45)
    light = draws.take(0.62, 0.9)
    swap = draws.take(0, 1) < 0.5
    ground, paint = np.where(swap, light, dark), np.where(swap, dark, light)
    value = np.stack([ground, ground, paint, paint], 1) + draws.take(-0.08, 0.08, 4)
    angle = 2 * np.pi * (hues[..., None] + np.array([0, 1 / 3, 2 / 3], np.float32))
    colours = value[..., None] + 0.22 * grey[..., None] * np.cos(angle)
    return colours[:, :2].astype(np.float32), colours[:, 2:].astype(np.float32)


def _background(draws: _Draws, x: Field, y: Field, ground: Field) -> Field:
    """A smooth mixture of two colours by three long waves."""
    wave = np.zeros((len(draws), SIDE, SIDE), np.float32)
    for _ in range(3):
        kx, ky, phase = (draws.take(-3, 3)[:, None, None] for _ in range(3))
        wave += np.sin(kx * x + ky * y + phase)
    mix = (0.5 + wave / 6)[..., None]
    return ground[:, 0, None, None] * (1 - mix) + ground[:, 1, None, None] * mix


def _clutter(draws: _Draws, x: Field, y: Field, picture: Field) -> Field:
    """Strokes and blobs of any colour."""
    for number in range(_STROKES + _BLOBS):
        ax, ay = (draws.take(-1, 1)[:, None, None] for _ in range(2))
        reach = 0.9 if number < _STROKES else 0.15
        bx, by = (a + draws.take(-reach, reach)[:, None, None] for a in (ax, ay))
        width = draws.take(0.03, 0.07)[:, None, None] if number < _STROKES else draws.take(0.08, 0.16)[:, None, None]
        dx, dy = bx - ax, by - ay
        along = np.clip(((x - ax) * dx + (y - ay) * dy) / (dx * dx + dy * dy + 1e-6), 0, 1)
        far = np.hypot(x - ax - along * dx, y - ay - along * dy) - width
        cover = np.clip(0.5 - far * SIDE / 2, 0, 1)[..., None] * draws.take(0.3, 0.9)[:, None, None, None]
        picture = picture * (1 - cover) + draws.take(0.1, 0.95, 3)[:, None, None] * cover
    return picture


def _texture(draws: _Draws, x: Field, y: Field) -> Field:
    """How much of the second colour: plain, stripes, checks or dots, at any angle."""
    kind, angle = (draws.take(0, high)[:, None, None] for high in (4.0, np.pi))
    rate, phase = draws.take(9, 18)[:, None, None], draws.take(0, 6.3, 2)
    u = np.sin(rate * (np.cos(angle) * x + np.sin(angle) * y) + phase[:, 0, None, None])
    v = np.sin(rate * (np.cos(angle) * y - np.sin(angle) * x) + phase[:, 1, None, None])
    pattern = np.select([kind < 1, kind < 2, kind < 3], [np.zeros_like(u), u, u * v], np.minimum(u, v))
    return np.clip(0.5 + 1.5 * pattern, 0, 1)
