"""Estimates the time of a plan: a rough model of the cost of each step, scaled by the times of finished runs.

The model's constants were measured on two idle cores with AVX-512 (docs/performance.md); processors with AVX2 only take
about twice as long. The scale is the median of measured over modelled seconds of the runs that were trained in the
output folder, on this machine. Runs of the ledger do not count: most of them shared their cores with other work.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from relatum import registry
from relatum.config.methods import METHODS
from relatum.config.protocols import LinearSettings
from relatum.data import sets
from relatum.paper.grid import Evaluation, Pretraining
from relatum.paper.measured import Results
from relatum.runs import ledger

_START = 10.0  # seconds until a process trains: imports, data, compilation
_LOAD = 3.0  # seconds until an evaluation starts
_STEP = 4e-3  # seconds per step besides views, backbone and pairs: the optimiser and Python
_PAIR = 0.23e-6  # seconds per pair of the relation head (14.7 ms for 63,488 pairs)
_VIEW = 2.7e-6  # seconds to augment one 32 x 32 view
_SPEED = 150e9  # multiply-adds and additions per second of a backbone: 145 (Conv-4, fused) to 154 (ResNet-32, compiled)
_LOCAL = 17e-3  # seconds of Deep InfoMax's local discriminator per 32 x 32 image: 1 GFLOP at every pixel of the map
_MOMENTUM_ENCODER = ("byol", "moco", "dino")
_PROBE_STEP = 1e-4  # seconds per step of a linear probe on features
_POINT, _CENTRE = 18e-6, 0.16e-6  # seconds of DeepCluster's k-means per image, and per image and cluster


def total(runs: Iterable[Pretraining], evaluations: Iterable[Evaluation], results: Results) -> float:
    """Seconds of runs and evaluations, one after another."""
    modelled = sum(map(run_seconds, runs)) + sum(map(evaluation_seconds, evaluations))
    return modelled * scale(results) if modelled else 0.0


def scale(results: Results) -> float:
    """Median of measured over modelled seconds of the runs that were trained in the output folder; 1 without any."""
    ratios = [
        seconds / run_seconds(run)
        for entry in ledger.read(results.out / "ledger")
        if (run := _pretraining(entry)) is not None and (seconds := results.seconds_here(entry.path.stem)) is not None
    ]
    return statistics.median(ratios) if ratios else 1.0


def _pretraining(entry: ledger.Entry) -> Pretraining | None:
    """The pretraining of a ledger entry, or None if this model does not apply to it."""
    recipe = entry.decisive
    if recipe is None:
        return None
    run = Pretraining(
        method=recipe["method"],
        data=recipe["data.name"],
        backbone=recipe["backbone.name"],
        views=recipe["views.number"],
        epochs=recipe["train.epochs"],
        batch_size=recipe["train.batch_size"],
        seed=recipe["seed"],
        val_fraction=recipe["data.val_fraction"],
        limit_train=recipe["data.limit_train"] or None,
        set=(("views.small_number", str(recipe["views.small_number"])),),
    )
    return run if METHODS[run.method].trains and run.data in sets.names() else None


def view_seconds(backbone: str, side: int) -> float:
    """Seconds of one view, forward and backward, which takes three times as many multiply-adds as forward alone."""
    row = registry.BACKBONES.get(backbone, registry.BACKBONES["resnet34"])
    return (side / 32) ** 2 * 6 * row.multiply_adds / _SPEED


def run_seconds(run: Pretraining) -> float:
    """Modelled seconds of one pretraining."""
    method, dataset = METHODS[run.method], sets.get(run.data)
    if not method.trains:
        return _START
    split = "train" if method.uses_labels else dataset.pretrain_split
    images = dataset.splits[split] * (1 - run.val_fraction)
    images = min(images, run.limit_train or images)
    area, view = (dataset.side / 32) ** 2, view_seconds(run.backbone, dataset.side)
    views = run.views + (run.all_views - run.views) / 4  # small views have half the side
    per_image = views * (view + _VIEW * area) + _STEP / run.batch_size
    if run.method == "relational":
        per_image += (run.views**2 - run.views) * _PAIR
    if run.method in _MOMENTUM_ENCODER:  # a second forward pass
        per_image += views * view / 3
    if run.method == "deepinfomax":
        per_image += _LOCAL * area
    if run.method == "deepcluster":  # every epoch: features of all images, then their clusters
        per_image += view / 3 + _POINT + min(10 * dataset.classes, images) * _CENTRE
    return _START + run.epochs * images * per_image


def evaluation_seconds(evaluation: Evaluation) -> float:
    """Modelled seconds of one evaluation; features cost a forward pass, a third of a training pass."""
    if evaluation.protocol == "classifier":
        return 0.0
    dataset = sets.get(evaluation.dataset)
    train, test = dataset.splits["train"], dataset.splits["test"]
    train = min(train, evaluation.limit_train or train)
    view = view_seconds(evaluation.run.backbone, dataset.side)
    epochs = evaluation.epochs or 0
    if evaluation.protocol == "linear":
        return _LOAD + (train + test) * view / 3 + epochs * (train / LinearSettings.batch_size) * _PROBE_STEP
    if evaluation.protocol == "finetune":
        return _LOAD + epochs * train * view + test * view / 3
    return _LOAD + test * view / 3 + (120.0 if evaluation.protocol == "tsne" else 10.0)
