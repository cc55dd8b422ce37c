"""Generates the images of `shapes`.

Ten shapes of random position, size, slant and texture on cluttered backgrounds, upright and lit from above (so that
predicting a rotation makes sense, as it does for photographs). All ten have the same area on average and colours do
not depend on the class: a classifier that sees colours alone stays at chance. Each image is a pure function of the
seed, its split and its index.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from relatum import rng
from relatum.data import cache
from relatum.data.arrays import open_array, write_array
from relatum.data.dataset import Dataset
from relatum.data.imageset import ImageSet
from relatum.data.readers.outlines import OUTLINES, distance, extent
from relatum.data.sets.shapes import SHAPES
from relatum.system.cpus import available_cpus

CLASSES = OUTLINES
SIDE = SHAPES.side
_SEED = 2020  # the year of the paper; every run uses the same images
_VERSION = 2  # increase when the same seed gives different pixels
_CHUNK = 250  # images drawn together: arrays of 250 × 1024 float32 stay in the processor's cache

Field = NDArray[np.float32]
Pixels = NDArray[np.uint8]
_STROKES, _BLOBS = 4, 4
_PIXEL = 2 / SIDE  # pictures span -1 to 1
_DROP = 2  # pixels from a shape down to its shadow


def read(dataset: Dataset, split: str, root: Path) -> ImageSet:
    """Read `train` or `test`; the images are drawn once and kept in the cache. `root` is not used."""
    count = dataset.splits[split]
    entry = cache.entry(
        dataset.name,
        f"{split}-{count}-v{_VERSION}",
        lambda folder: _write(folder, split, count),
        valid=lambda folder: _valid(folder, count),
    )
    images = open_array(entry / "images.npy", (count, SIDE, SIDE, 3))
    return ImageSet.of(dataset, split, images, np.load(entry / "labels.npy"), CLASSES)


def _write(folder: Path, split: str, count: int) -> None:
    images, labels = draw(count, seed=_SEED, split=split)
    write_array(folder / "images.npy", images.shape, [images])
    np.save(folder / "labels.npy", labels)
    for file in folder.iterdir():
        cache.sync(file)


def _valid(folder: Path, count: int) -> bool:
    open_array(folder / "images.npy", (count, SIDE, SIDE, 3))  # raises where it does not fit
    try:
        return np.load(folder / "labels.npy").shape == (count,)
    except (ValueError, EOFError):
        return False


def draw(count: int, *, seed: int, split: str = "train") -> tuple[Pixels, NDArray[np.int64]]:
    """Draw `count` images and their labels; classes are balanced and in random order."""
    part = list(SHAPES.splits).index(split)
    labels = rng.permutation(count, rng.SHAPES, seed, part, -1) % len(CLASSES)
    images = np.empty((count, SIDE, SIDE, 3), np.uint8)

    def fill(start: int) -> None:
        rows = np.arange(start, min(start + _CHUNK, count))
        images[rows] = _pictures(_Draws(rng.key(rng.SHAPES, seed, part, rows)), labels[rows])

    with ThreadPoolExecutor(min(8, available_cpus())) as pool:  # numpy releases the interpreter in long operations
        list(pool.map(fill, range(0, count, _CHUNK)))
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

    def noise(self, reach: int, *shape: int) -> Field:
        """Whole numbers from -reach to reach of shape (pictures, *shape), from a byte each."""
        number = -(-int(np.prod(shape)) // 8)
        random_bits = rng.bits(self._keys, np.arange(self._next, self._next + number)).astype("<u8")
        self._next += number
        steps = random_bits.view(np.uint8).reshape(len(self._keys), *shape).astype(np.float32) * ((2 * reach + 1) / 256)
        return np.floor(steps) - reach


def _pictures(draws: _Draws, labels: NDArray[np.int64]) -> Pixels:
    """Backgrounds, clutter, a shadow, the shape with its texture and light, and a little noise, one over the other."""
    centres = ((np.arange(SIDE) + 0.5) * _PIXEL - 1).astype(np.float32)
    x, y = centres[None, None, :], centres[None, :, None]
    ground, paint = _colours(draws)
    picture = _background(draws, x, y, ground)
    _clutter(draws, x, y, picture)

    size = draws.take(0.45, 0.72)
    reach = np.maximum(0, 1 - size * np.array([extent(name) for name in CLASSES], np.float32)[labels])
    cx, cy = draws.take(-1, 1) * reach, draws.take(-1, 1) * reach
    slant, stretch = draws.take(-0.2, 0.2), np.exp(draws.take(-0.12, 0.12))
    depth = np.empty((len(draws), SIDE, SIDE), np.float32)
    for label, name in enumerate(CLASSES):
        rows = labels == label
        depth[rows] = _distance(name, x, y, *(v[rows, None, None] for v in (cx, cy, size, slant, stretch)))

    shade = np.concatenate([np.repeat(depth[:, :1] + _DROP * _PIXEL, _DROP, 1), depth[:, :-_DROP]], 1)
    picture *= 1 - (np.clip(0.5 - shade / (4 * _PIXEL), 0, 1) * draws.take(0.25, 0.5)[:, None, None])[:, None]
    light = 1 - draws.take(0.15, 0.35)[:, None, None] * (y - cy[:, None, None])
    texture = _texture(draws, x - cx[:, None, None], y - cy[:, None, None])[:, None]
    surface = paint[:, 0, :, None, None] + (paint[:, 1] - paint[:, 0])[..., None, None] * texture
    surface *= light[:, None]
    _lay(picture, surface, np.clip(0.5 - depth / _PIXEL, 0, 1))
    picture *= 255
    picture += draws.noise(10, 3, SIDE, SIDE)
    return np.rint(np.clip(picture, 0, 255)).astype(np.uint8).transpose(0, 2, 3, 1)


def _lay(picture: Field, colour: Field, cover: Field) -> None:
    """Lay a colour over a picture in place, as far as it covers."""
    picture += (colour - picture) * cover[:, None]


def _distance(name: str, x: Field, y: Field, cx: Field, cy: Field, size: Field, slant: Field, stretch: Field) -> Field:
    """Signed distance of every pixel from an outline that is moved, scaled, slanted and stretched."""
    u, v = (x - cx) / size, (y - cy) / size
    cos, sin = np.cos(slant), np.sin(slant)
    return distance(name, (cos * u + sin * v) * stretch, (cos * v - sin * u) / stretch) * size


def _colours(draws: _Draws) -> tuple[Field, Field]:
    """Two colours of the ground and two of the shape: dark before light or light before dark, of any hue."""
    hue, strength = draws.take(0, 1, 4), draws.take(0.03, 0.2, 4)
    dark, light, swap = draws.take(0.22, 0.45), draws.take(0.62, 0.9), draws.take(0, 1) < 0.5
    ground, paint = np.where(swap, light, dark), np.where(swap, dark, light)
    value = np.stack([ground, ground, paint, paint], 1) + draws.take(-0.08, 0.08, 4)
    angle = 2 * np.pi * (hue[..., None] + np.array([0, 1 / 3, 2 / 3], np.float32))
    colours = (value[..., None] + strength[..., None] * np.cos(angle)).astype(np.float32)
    return colours[:, :2], colours[:, 2:]


def _background(draws: _Draws, x: Field, y: Field, ground: Field) -> Field:
    """A smooth mixture of two colours by three long waves."""
    wave = np.zeros((len(draws), SIDE, SIDE), np.float32)
    for _ in range(3):
        kx, ky, phase = (draws.take(-3, 3)[:, None, None] for _ in range(3))
        wave += np.sin(kx * x + ky * y + phase)
    wave *= 1 / 6
    wave += 0.5
    return ground[:, 0, :, None, None] + (ground[:, 1] - ground[:, 0])[..., None, None] * wave[:, None]


def _clutter(draws: _Draws, x: Field, y: Field, picture: Field) -> None:
    """Lay strokes and blobs of any colour over a picture, in place."""
    for number in range(_STROKES + _BLOBS):
        stroke = number < _STROKES
        ax, ay = (draws.take(-1, 1)[:, None, None] for _ in range(2))
        dx, dy = (draws.take(-0.9, 0.9)[:, None, None] * (1 if stroke else 0.15) for _ in range(2))
        width = draws.take(*((0.03, 0.07) if stroke else (0.08, 0.16)))[:, None, None]
        along = np.clip(((x - ax) * dx + (y - ay) * dy) / (dx * dx + dy * dy + np.float32(1e-6)), 0, 1)
        far = np.sqrt((x - ax - along * dx) ** 2 + (y - ay - along * dy) ** 2) - width
        cover = np.clip(0.5 - far / _PIXEL, 0, 1) * draws.take(0.3, 0.9)[:, None, None]
        _lay(picture, draws.take(0.1, 0.95, 3)[..., None, None], cover)


def _texture(draws: _Draws, x: Field, y: Field) -> Field:
    """How much of the second colour: plain, stripes, checks or dots, at any angle."""
    kind, angle = (draws.take(0, high)[:, None, None] for high in (4.0, np.pi))
    rate, phase = draws.take(9, 18)[:, None, None], draws.take(0, 6.3, 2)
    u = np.sin(rate * (np.cos(angle) * x + np.sin(angle) * y) + phase[:, 0, None, None])
    v = np.sin(rate * (np.cos(angle) * y - np.sin(angle) * x) + phase[:, 1, None, None])
    pattern = np.select([kind < 1, kind < 2, kind < 3], [np.zeros_like(u), u, u * v], np.minimum(u, v))
    return np.clip(0.5 + 1.5 * pattern, 0, 1)
