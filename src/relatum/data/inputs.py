"""Images that are passed from Python: paths, Pillow images, arrays and tensors become an `ImageSet`. No torch here.

Arrays have the channels last, (H, W, 3) or (N, H, W, 3): uint8, or floats in [0, 1]. Tensors have them first, as in
torch: (3, H, W) or (N, 3, H, W). Grey images, (H, W), are accepted one by one. Every image is cut to its central
square and resized like a file, so that a file and its pixels have the same representation.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence, Set
from io import IOBase
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from relatum.data.decode import decode, reason, to_square
from relatum.data.imageset import ImageSet
from relatum.errors import InputError, require_channels
from relatum.registry import IN_MEMORY

_SIDE, _MEAN, _STD = 32, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)  # for a network without metadata


def is_path(data: Any) -> bool:
    """Whether `data` is a name or a path rather than images."""
    return isinstance(data, str | os.PathLike)


def is_image_file(data: Any) -> bool:
    """Whether `data` is the path of one file that is not a tar archive."""
    return is_path(data) and Path(data).is_file() and Path(data).suffix != ".tar"


def read_images(
    data: Any, *, side: int | None = None, mean: Sequence[float] | None = None, std: Sequence[float] | None = None
) -> ImageSet:
    """Images from one path, Pillow image, array or tensor, or from a sequence of them.

    Args:
        data: the images; see the module.
        side: resize to this many pixels; by default the side of arrays and tensors that are all square and of one size,
            or 32.
        mean: mean per channel, for the normalisation.
        std: standard deviation per channel.

    Raises:
        InputError: an image cannot be read; nothing is skipped, so that row n belongs to image n.
    """
    items = list_images(data)
    if not items:
        raise InputError("there are no images: the list is empty.")
    side = side or _common_side(items) or _SIDE
    images = np.empty((len(items), side, side, 3), np.uint8)
    for number, item in enumerate(items):
        images[number] = _pixels(item, side, number)
    files = [os.fspath(item) for item in items] if all(map(is_path, items)) else None
    return ImageSet(
        name=IN_MEMORY,
        split="train",
        images=images,
        labels=None,
        classes=(),
        mean=_MEAN if mean is None else require_channels("mean", mean),
        std=_STD if std is None else require_channels("std", std),
        pad=side // 8,
        files=files,
    )


def list_images(data: Any) -> list[Any]:
    """The images one by one, of one path, Pillow image, array or tensor, or of several."""
    if is_path(data) or isinstance(data, Image.Image):
        return [data]
    shape = getattr(data, "shape", None)
    if shape is not None and not isinstance(data, np.ndarray):  # a tensor, channels first
        data = _numpy(data)
    if isinstance(data, np.ndarray) and data.dtype.kind not in "OU":  # an array of paths is a list
        if data.ndim not in (2, 3, 4):
            raise InputError(f"an array of images has shape (N, H, W, 3), not {data.shape}.")
        return list(data) if data.ndim == 4 else [data]
    if isinstance(data, Set | Mapping):
        raise InputError(
            f"images are a list or another sequence; a {type(data).__name__} does not say which row is which."
        )
    if not isinstance(data, Iterable) or isinstance(data, bytes | bytearray | IOBase):
        raise InputError(f"images are paths, Pillow images, arrays or tensors, not {type(data).__name__}.")
    return list(data)


def _numpy(tensor: Any) -> NDArray[Any]:
    """A tensor (3, H, W) or (N, 3, H, W) as an array with the channels last."""
    if hasattr(tensor, "detach"):
        tensor = tensor.detach().cpu()
        if str(tensor.dtype) == "torch.bfloat16":  # which NumPy does not have
            tensor = tensor.float()
    array = np.asarray(tensor)
    if array.ndim < 3:
        return array
    if array.shape[-3] not in (1, 3):
        shape = tuple(array.shape)
        hint = " Move the channels: images.movedim(-1, -3)." * (shape[-1] in (1, 3))
        raise InputError(f"a tensor of images has shape (N, 3, H, W), not {shape}.{hint}")
    return np.moveaxis(array, -3, -1)


def _common_side(items: list[Any]) -> int | None:
    """The side of arrays and tensors that are all square and of one size; files are not opened."""
    sizes = {_height_width(item) for item in items}
    height, width = sizes.pop() if len(sizes) == 1 else (0, 0)
    return height if height == width and height >= 8 else None


def _height_width(item: Any) -> tuple[int, int]:
    """Of an array or a tensor; zeros for anything else."""
    shape = tuple(getattr(item, "shape", ()))
    if len(shape) < 2:
        return 0, 0
    height, width = shape[:2] if isinstance(item, np.ndarray) else shape[-2:]
    return int(height), int(width)


def _pixels(item: Any, side: int, number: int) -> NDArray[np.uint8]:
    try:
        if is_path(item):
            if not Path(item).exists():
                raise OSError("there is no such file")
            return decode(Path(item), side)
        if isinstance(item, Image.Image):
            return to_square(item, side)
        if isinstance(item, tuple | list):
            raise InputError(f"image {number} is a {type(item).__name__}; pass images alone, without their labels.")
        if not hasattr(item, "shape"):
            raise InputError(f"image {number} is a {type(item).__name__}, not a path, Pillow image, array or tensor.")
        return to_square(Image.fromarray(_bytes(item if isinstance(item, np.ndarray) else _numpy(item))), side)
    except InputError:
        raise
    except Exception as error:  # Pillow and NumPy may raise any exception for invalid input
        label = os.fspath(item) if is_path(item) else f"image {number}"
        raise InputError(f"{label} cannot be read: {reason(error)}.") from None


def _bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Pixels as uint8; floats are colours in [0, 1]."""
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[..., 0]
    if array.ndim != 2 and (array.ndim != 3 or array.shape[2] != 3):
        hint = " Move the channels: np.moveaxis(images, -3, -1)." * (array.ndim == 3 and array.shape[0] == 3)
        raise InputError(f"an image has shape (H, W, 3) or (H, W), not {array.shape}.{hint}")
    if not array.size:
        raise InputError(f"an image of shape {array.shape} has no pixels.")
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    if array.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise InputError("an image contains NaN or infinite values.")
        if array.min() < 0 or array.max() > 1:
            raise InputError("an image of floats has colours in [0, 1]; give uint8 for 0 to 255.")
        return np.rint(array * 255).astype(np.uint8)
    if array.dtype.kind in "iu" and array.min() >= 0 and array.max() <= 255:
        return array.astype(np.uint8)
    raise InputError(f"pixels are uint8, or floats in [0, 1], not {array.dtype}.")
