"""Views per second: the fused kernel and the plain Pillow chain, timed alternately in one run, on one core each.

kornia (batched, all cores) and torchvision (one core) are measured too where they are installed.
"""

from __future__ import annotations

import math
import platform
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from relatum.bench import spread
from relatum.bench.plain import PillowChain
from relatum.system.allocator import keep_freed_memory
from relatum.system.cpus import available_cpus
from relatum.views import POLICIES, sample
from relatum.views import compiled as cpu

_MEAN, _STD = (0.491, 0.482, 0.447), (0.247, 0.243, 0.262)


def measure(
    images: NDArray[np.uint8],
    views: int = 32,
    batch_size: int = 64,
    side: int = 32,
    repeats: int = 9,
    plain_views: int = 256,
) -> dict[str, Any]:
    """Time one batch of the relational chain.

    Args:
        images: (N, H, W, 3) uint8.
        views: K.
        batch_size: M.
        side: of the views.
        repeats: rounds; every round times every implementation once, and medians are reported.
        plain_views: number of views that the one-at-a-time chains compute per round; their time is scaled to the batch.

    Returns:
        The benchmark's JSON: `ours_seconds` and `plain_seconds` for K·M views on one core, `speedup`, and spreads.
    """
    keep_freed_memory()  # as training does
    count = views * batch_size
    jobs: dict[str, tuple[Callable[[], Any], float]] = {
        "ours": (_ours(images, views, batch_size, side, threads=1), 1.0),
        "ours_all_cores": (_ours(images, views, batch_size, side, threads=None), 1.0),
        "plain": (_one_by_one(PillowChain(side, _MEAN, _STD), images, plain_views), count / plain_views),
    }
    for name, make in (("kornia", _kornia), ("torchvision", _torchvision)):
        try:
            jobs[name] = make(images, count, side, plain_views)
        except ImportError:
            continue
    times = _interleave(jobs, repeats)
    median = {name: statistics.median(seconds) for name, seconds in times.items()}
    result: dict[str, Any] = {
        "what": "views", "method": "relational", "views": views, "batch_size": batch_size, "side": side,
        "backbone": None,
        "ours_seconds": median["ours"], "plain_seconds": median["plain"], "speedup": median["plain"] / median["ours"],
        "spread": {name: spread(seconds) for name, seconds in times.items()},
        "ours_seconds_all_cores": median["ours_all_cores"], "cores": available_cpus(),
        "microseconds_per_view": {name: 1e6 * seconds / count for name, seconds in median.items()},
        "repeats": repeats, "machine": platform.processor() or platform.machine(), "torch": torch.__version__,
    }  # fmt: skip
    if "kornia" in median:  # batched on all cores: compared with ours on all cores
        result["speedup_over_kornia"] = median["kornia"] / median["ours_all_cores"]
    if "torchvision" in median:
        result["speedup_over_torchvision"] = median["torchvision"] / median["ours"]
    return result


def _interleave(jobs: dict[str, tuple[Callable[[], Any], float]], repeats: int) -> dict[str, list[float]]:
    """Every job once a round, each for at least 50 ms, so that each is measured in its steady state."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    loops = {name: max(1, math.ceil(0.05 / min(_time(job, 1), _time(job, 1)))) for name, (job, _) in jobs.items()}
    for _ in range(repeats):
        for name, (job, factor) in jobs.items():
            job()  # back into the caches after the others
            times[name].append(_time(job, loops[name]) * factor)
    return times


def _time(job: Callable[[], Any], loops: int) -> float:
    begin = time.perf_counter()
    for _ in range(loops):
        job()
    return (time.perf_counter() - begin) / loops


def _ours(images: NDArray[np.uint8], views: int, batch_size: int, side: int, threads: int | None) -> Callable[[], Any]:
    height, width = images.shape[1:3]
    rounds = iter(range(1_000_000))

    def job() -> None:
        epoch = next(rounds)
        indices = np.random.default_rng(epoch).integers(0, len(images), batch_size)
        params = sample(
            POLICIES["relational"],
            seed=0, epoch=epoch, indices=indices, views=views, height=height, width=width, pad=0, side=side,
        )  # fmt: skip
        cpu.make_views(images, np.tile(indices, views), params, side, _MEAN, _STD, threads)

    return job


def _one_by_one(chain: Callable[[NDArray[np.uint8]], Any], images: NDArray[np.uint8], count: int) -> Callable[[], Any]:
    def job() -> None:
        for _ in range(count):
            chain(images[random.randrange(len(images))])

    return job


def _kornia(images: NDArray[np.uint8], count: int, side: int, _: int) -> tuple[Callable[[], Any], float]:
    import kornia.augmentation as augmentation  # type: ignore[import-not-found,unused-ignore]

    chain = torch.nn.Sequential(
        augmentation.RandomResizedCrop((side, side), scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3)),
        augmentation.RandomHorizontalFlip(p=0.5),
        augmentation.ColorJitter(0.8, 0.8, 0.8, 0.2, p=0.8),
        augmentation.RandomGrayscale(p=0.2),
        augmentation.Normalize(torch.tensor(_MEAN), torch.tensor(_STD)),
    )

    def job() -> None:
        batch = torch.from_numpy(images[np.random.default_rng(0).integers(0, len(images), count)])
        with torch.no_grad():
            chain(batch.permute(0, 3, 1, 2).float() / 255)

    return job, 1.0


def _torchvision(images: NDArray[np.uint8], count: int, side: int, few: int) -> tuple[Callable[[], Any], float]:
    from PIL import Image
    from torchvision import transforms  # type: ignore[import-not-found,import-untyped,unused-ignore]

    chain = transforms.Compose(
        [
            transforms.RandomResizedCrop(side),
            transforms.RandomHorizontalFlip(),
            transforms.RandomApply([transforms.ColorJitter(0.8, 0.8, 0.8, 0.2)], p=0.8),
            transforms.RandomGrayscale(p=0.2),
            transforms.ToTensor(),
            transforms.Normalize(_MEAN, _STD),
        ]
    )
    return _one_by_one(lambda image: chain(Image.fromarray(image)), images, few), count / few
