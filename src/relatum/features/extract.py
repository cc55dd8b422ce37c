"""Representations of clean images, computed once: what every offline evaluation uses.

A frozen backbone gives the same features at every epoch of a probe, so computing them once is exact. `cached` keeps
them in the run folder under a key of everything they depend on: the backbone's weights and buffers, the pixels, the
normalisation, and what can change bits (torch, threads, batch size). Different inputs have a different key.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from relatum.backbones import evaluating, representations
from relatum.data.dataset import RGB
from relatum.data.imageset import ImageSet
from relatum.errors import InputError, require_positive
from relatum.system.files import file_safe, write_atomically
from relatum.system.npy import read_array
from relatum.system.progress import Display, bar

Features = NDArray[np.float32]


def extract(backbone: nn.Module, images: ImageSet, *, batch_size: int = 512, progress: bool = False) -> Features:
    """The (N, d) float32 representations of clean images, by the backbone in eval mode and without gradients.

    Args:
        backbone: any module from (N, 3, H, W) to (N, d); its mode is restored afterwards. It gets images in the type of
            its weights, which may be half precision.
        images: normalised with their own `mean` and `std`, not otherwise changed; memory maps are read batch by batch.
        batch_size: images per pass.
        progress: show a bar when it takes more than two seconds.
    """
    if not len(images):
        raise InputError(f"{images.name} ({images.split}) contains no images.")
    require_positive("batch_size", batch_size)
    z: Features | None = None
    with evaluating(backbone), torch.no_grad(), bar("representations", len(images), show=progress) as advance:
        device = _device(backbone)
        for start in range(0, len(images), batch_size):
            pixels = normalise(images.images[start : start + batch_size], images.mean, images.std, device)
            batch = _represent(backbone, pixels)
            if z is None:
                z = np.empty((len(images), batch.shape[1]), np.float32)
            z[start : start + len(batch)] = batch
            advance(len(batch))
    assert z is not None
    return _finite(z, images)


def _represent(backbone: nn.Module, pixels: Tensor) -> Features:
    """The representations of normalised images, one row for each."""
    try:
        output = backbone(pixels.to(_dtype(backbone)))
    except (RuntimeError, ValueError, AssertionError) as error:
        if getattr(backbone, "info", None):  # of relatum, or of a user who stated the size
            raise
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"the network failed on images of {pixels.shape[-1]} × {pixels.shape[-1]} pixels ({reason}); if it needs"
            " another size, set it before: network.info = {'side': 224}."
        ) from error
    z: Features = representations(output, len(pixels)).float().cpu().numpy()
    return z


def _finite(z: Features, images: ImageSet) -> Features:
    """Refuse representations that are not finite: a search or a map of them would silently be meaningless."""
    bad = np.flatnonzero(~np.isfinite(z).all(1))
    if len(bad):
        first = f" (the first: {images.files[int(bad[0])]})" if images.files is not None else ""
        raise InputError(
            f"the backbone gives NaN or infinite values for {len(bad):,} of {len(z):,} images of {images.name}{first}."
            " Training may have diverged, or the weights are damaged."
        )
    return z


def normalise(images: NDArray[np.uint8], mean: RGB, std: RGB, device: torch.device | str = "cpu") -> Tensor:
    """Clean uint8 images (N, H, W, 3) as the network's input: (x / 255 − mean) / std, (N, 3, H, W), channels last."""
    x = torch.tensor(images, device=device).permute(0, 3, 1, 2).float().div_(255)
    return x.sub_(_channels(mean, x)).div_(_channels(std, x))


def _channels(values: RGB, like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device).view(1, 3, 1, 1)


def _device(module: nn.Module) -> torch.device:
    for tensor in (*module.parameters(), *module.buffers()):
        return tensor.device
    return torch.device("cpu")


def _dtype(module: nn.Module) -> torch.dtype:
    """The type of a module's weights, and of the images that it takes."""
    return next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)


# ----------------------------------------------------------------------------------------------------------- the cache


def cached(
    backbone: nn.Module, images: ImageSet, folder: Path, *, batch_size: int = 512, progress: bool = False
) -> Features:
    """As `extract`, kept as `folder/DATASET-SPLIT-KEY.npy` with its checksum; a damaged file is computed again."""
    name = f"{file_safe(images.name)}-{file_safe(images.split)}-{cache_key(backbone, images, batch_size)}.npy"
    place = folder / name
    kept = _read(place, len(images), progress=progress)
    if kept is not None:
        return _finite(kept, images)
    z = extract(backbone, images, batch_size=batch_size, progress=progress)

    def write(path: Path) -> None:
        with path.open("wb") as file:
            np.save(file, z)
            file.write(_checksum(z))  # after the array, where readers of .npy files do not look

    with contextlib.suppress(OSError):  # a run on a read-only disk can still be evaluated
        write_atomically(place, write)
    return z


def _read(place: Path, count: int, *, progress: bool) -> Features | None:
    """The features in a file, or None if there is no file or it is damaged.

    Hashing takes about 1.1 ms per megabyte. With the key (a hash of pixels and weights), reading takes 0.04 of the time
    of Conv-4's forward pass that it saves (benchmarks/hashing.py).
    """
    try:
        with place.open("rb") as file:
            size = place.stat().st_size
            z = read_array(file, size, size)
            if file.read() != _checksum(z):
                raise ValueError("its checksum is wrong")
        if z.dtype != np.float32 or z.ndim != 2 or len(z) != count:
            raise ValueError(f"it has shape {z.shape} for {count} images")
    except FileNotFoundError:
        return None
    except Exception as error:  # a damaged header may raise anything
        Display(quiet=not progress).warn(f"{place} is damaged ({error}); the representations are computed again.")
        return None
    return z


def _checksum(z: Features) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(z).data).digest()


def cache_key(backbone: nn.Module, images: ImageSet, batch_size: int) -> str:
    """A short hash of all that the features depend on."""
    parts = (
        function_hash(backbone, images.images.shape[1]),
        pixel_hash(images),
        repr((tuple(images.mean), tuple(images.std), batch_size)),
        f"{torch.__version__} {_device(backbone).type} {torch.get_num_threads()}",
    )
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]


def function_hash(module: nn.Module, side: int) -> str:
    """A hash of what a module computes: `state_hash`, and for code of others also what it makes of two images.

    A network of the user may be edited and keep its weights: another activation has none. What was kept of the network
    before must not be taken for its own.
    """
    if type(module).__module__.startswith("relatum."):
        return state_hash(module)
    noise = np.random.default_rng(0).integers(0, 256, (2, side, side, 3), np.uint8)
    state = state_hash(module)
    with evaluating(module), torch.no_grad():
        z = _represent(module, normalise(noise, (0.5,) * 3, (0.25,) * 3, _device(module)))
    return hashlib.sha256(state.encode() + z.tobytes()).hexdigest()


def state_hash(module: nn.Module) -> str:
    """A hash of a module's parameters and buffers, names included: equal exactly where all bits are equal."""
    digest = hashlib.sha256(type(module).__qualname__.encode())
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for name in sorted(tensors):
        value = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def pixel_hash(images: ImageSet) -> str:
    """A hash of every pixel: about 0.1 s for CIFAR-10, a fiftieth of the fastest forward pass over the same images."""
    digest = hashlib.sha256(repr(images.images.shape).encode())
    step = max(1, (64 << 20) // max(1, images.images[:1].nbytes))
    for start in range(0, len(images), step):
        digest.update(np.ascontiguousarray(images.images[start : start + step]).data)
    return digest.hexdigest()
