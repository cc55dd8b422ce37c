"""How long a plan will take on this machine: a cost per view, measured once per backbone, times what is planned.

The cost of a view is one forward and backward pass of the backbone. It is measured on a few dozen images (well under a
second for most backbones) in processor time, so that a busy machine does not distort it, and kept in the user's cache
folder for this machine and number of threads; without a measurement, or where torch is not wanted, a rough model from
the backbone's operations serves. An estimate, no promise.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from relatum import registry
from relatum.config.methods import METHODS
from relatum.paper.grid import Evaluation, Pretraining
from relatum.system.cpus import available_cpus
from relatum.system.files import write_json

Cost = Callable[[str, int], float]  # (backbone, side) -> seconds of one view, forward and backward

IMAGES = {  # pretraining images, labelled training images, test images
    "cifar10": (50_000, 50_000, 10_000),
    "cifar100": (50_000, 50_000, 10_000),
    "cifar100-20": (50_000, 50_000, 10_000),
    "stl10": (100_000, 5_000, 8_000),
    "tiny-imagenet": (100_000, 100_000, 10_000),
    "slimagenet": (160_000, 160_000, 20_000),
    "shapes": (10_000, 10_000, 2_000),
}
# Multiply-adds of one 32 x 32 view, forward, in millions; they grow with the area.
_MEGA = {"conv4": 1.1, "resnet8": 12.5, "resnet32": 69.0, "resnet56": 126.0, "resnet34": 75.0}
_START = 10.0  # seconds until a process trains: imports, data, compilation
_PAIR = 0.6e-6  # seconds per pair of the relation head (37 ms for 63,488 pairs, two cores)
_VIEW = 5e-6  # seconds to make one 32 x 32 view (two cores)
_LOCAL = 17e-3  # seconds of Deep InfoMax's local discriminator for a 32 x 32 image: 1 GFLOP at every pixel of the map
_PROBE_STEP = 2.5e-4  # seconds per step of a linear probe on features
_POINT, _CENTRE = 18e-6, 0.16e-6  # seconds of DeepCluster's k-means per image, and per image and cluster (`clustering`)


def rough(backbone: str, side: int) -> float:
    """Seconds of one view from operation counts: 60 GFLOP/s and a floor for memory traffic (two cores of 2.8 GHz)."""
    area = (side / 32) ** 2
    return area * (1.5e-4 + _MEGA[backbone] * 1e6 * 6 / 60e9)


class Measured:
    """Measured seconds of one view on this machine; each backbone and side is measured once and kept.

    Args:
        path: the file they are kept in; by default in the user's cache folder.
    """

    def __init__(self, path: Path | None = None) -> None:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        self.path = path or cache / "relatum" / "view-seconds.json"
        self.kept: dict[str, float] = {}
        with contextlib.suppress(OSError, ValueError, AttributeError):
            self.kept = {str(k): float(v) for k, v in json.loads(self.path.read_text("utf-8")).items()}

    def __call__(self, backbone: str, side: int) -> float:
        """Seconds of one view, measured now if they were not before."""
        threads = _threads()
        key = f"{backbone}, {side} px, {threads} threads, {platform.machine()}, processor time"
        if key not in self.kept:
            try:
                self.kept[key] = _measure(backbone, side) / threads**0.9
            except (ImportError, RuntimeError):
                return rough(backbone, side)
            with contextlib.suppress(OSError):
                write_json(self.path, self.kept)
        return self.kept[key]


def _threads() -> int:
    """The threads that a run will use: $OMP_NUM_THREADS, or the cores there are."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    if wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    return available_cpus()


def _measure(backbone: str, side: int) -> float:
    """Processor seconds of one view on one thread, the least of several passes.

    One thread, because on a busy machine two that wait for each other take many times longer (60 times was seen).
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        model = registry.resolve(registry.BACKBONES[backbone].target)().train().to(memory_format=torch.channels_last)
        count = int(min(64, max(4, 0.08 / rough(backbone, side))))  # a tenth of a second or two per pass
        images = torch.zeros(count, 3, side, side).contiguous(memory_format=torch.channels_last)
        times: list[float] = []
        while len(times) < 3 or (sum(times) < 0.6 and len(times) < 20):
            start = time.thread_time()
            model(images).sum().backward()
            times.append(time.thread_time() - start)
    finally:
        torch.set_num_threads(threads)
    return min(times[1:]) / count


def run_seconds(run: Pretraining, cost: Cost) -> float:
    """Seconds of one pretraining."""
    if not METHODS[run.method].trains:
        return _START
    side = registry.DATASETS[run.data].side
    labelled = METHODS[run.method].uses_labels
    images = IMAGES[run.data][1 if labelled else 0] * (1 - run.val_fraction)
    images = min(images, run.limit_train or images)
    per_image = run.views * (cost(run.backbone, side) + _VIEW * (side / 32) ** 2)
    if run.method == "relational":
        per_image += (run.views**2 - run.views) * _PAIR
    if run.method == "deepinfomax":
        per_image += _LOCAL * (side / 32) ** 2
    if run.method == "deepcluster":  # every epoch: features of all images, then their clusters
        clusters = min(10 * registry.DATASETS[run.data].classes, images)
        per_image += cost(run.backbone, side) / 3 + _POINT + clusters * _CENTRE
    return _START + run.epochs * images * per_image


def evaluation_seconds(evaluation: Evaluation, cost: Cost) -> float:
    """Seconds of one evaluation; features cost a forward pass, a third of a training pass."""
    if evaluation.protocol == "classifier":
        return 0.0
    _, train, test = IMAGES[evaluation.dataset]
    train = min(train, evaluation.limit_train or train)
    view = cost(evaluation.run.backbone, registry.DATASETS[evaluation.dataset].side)
    epochs = evaluation.epochs or 0
    if evaluation.protocol == "linear":
        return _START + (train + test) * view / 3 + epochs * (train / 128) * _PROBE_STEP
    if evaluation.protocol == "finetune":
        return _START + epochs * train * view + test * view / 3
    return _START + test * view / 3 + (120.0 if evaluation.protocol == "tsne" else 10.0)


def total(runs: Iterable[Pretraining], evaluations: Iterable[Evaluation], cost: Cost) -> float:
    """Seconds of runs and evaluations, one after another."""
    return sum(run_seconds(r, cost) for r in runs) + sum(evaluation_seconds(e, cost) for e in evaluations)


def words(seconds: float) -> str:
    """Seconds for people: `40 s`, `12 min`, `5.5 h`, `3.2 days`."""
    for limit, unit, name in ((90, 1, "s"), (90 * 60, 60, "min"), (48 * 3600, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.0f} {name}" if name != "h" else f"{seconds / unit:.1f} {name}"
    return f"{seconds / 86400:.1f} days"
