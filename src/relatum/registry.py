"""The tables of backbones and datasets, and how a row's code is imported. No torch here.

A new backbone or dataset is one file and one row; the table of methods is `relatum.config.methods`. A row names its
code as `module:attribute`; it is imported only when it is used, so `relatum --help` and `relatum list` stay instant.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relatum.errors import unknown

# ------------------------------------------------------------------------------------------------------- backbones


@dataclass(frozen=True)
class Backbone:
    """A row of the table of backbones.

    Attributes:
        target: the function that builds it, `module:attribute`.
        title: its name as the paper writes it.
        summary: one line of description.
        num_features: size of its representation.
        parameters: number of its parameters, without a classifier.
    """

    target: str
    title: str
    summary: str
    num_features: int
    parameters: int


BACKBONES: dict[str, Backbone] = {
    "conv4": Backbone("relatum.backbones.conv4:conv4", "Conv-4", "four convolution blocks", 64, 24_648),
    "resnet8": Backbone(
        "relatum.backbones.resnet_small:resnet8", "ResNet-8", "small ResNet, 16-32-64 channels", 64, 77_392
    ),
    "resnet32": Backbone(
        "relatum.backbones.resnet_small:resnet32", "ResNet-32", "small ResNet, 16-32-64 channels", 64, 466_256
    ),
    "resnet56": Backbone(
        "relatum.backbones.resnet_small:resnet56", "ResNet-56", "small ResNet, 16-32-64 channels", 64, 855_120
    ),
    "resnet34": Backbone("relatum.backbones.resnet34:resnet34", "ResNet-34", "the standard ResNet-34", 512, 21_284_672),
}

# -------------------------------------------------------------------------------------------------------- datasets


@dataclass(frozen=True)
class Dataset:
    """A row of the table of datasets.

    Attributes:
        target: its loader, `module:function`, called as `function(name, split, root=...)`.
        summary: one line for people.
        side, pad, mean, std, classes: as the paper uses them.
        pretrain_split: the split that pretraining reads.
        cutout_area: share of a view that the finetune chain blanks; 0.111 is the paper's 32 × 32 of 96 × 96.
    """

    target: str
    summary: str
    side: int
    pad: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    classes: int
    pretrain_split: str = "train"
    cutout_area: float = 0.111


_CIFAR10 = ((0.491, 0.482, 0.447), (0.247, 0.243, 0.262))
_CIFAR100 = ((0.507, 0.487, 0.441), (0.267, 0.256, 0.276))
_HALF, _QUARTER = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)

DATASETS: dict[str, Dataset] = {
    "cifar10": Dataset(
        "relatum.data.sets.cifar:load", "60,000 images, 10 classes", 32, 4, *_CIFAR10, 10, cutout_area=0.25
    ),
    "cifar100": Dataset(
        "relatum.data.sets.cifar:load", "60,000 images, 100 classes", 32, 4, *_CIFAR100, 100, cutout_area=0.0625
    ),
    "cifar100-20": Dataset(
        "relatum.data.sets.cifar:load", "CIFAR-100 with its 20 coarse labels", 32, 4, *_CIFAR100, 20, cutout_area=0.0625
    ),
    "stl10": Dataset(
        "relatum.data.sets.stl10:load",
        "100,000 unlabelled, 5,000 + 8,000 labelled",
        96,
        12,
        _HALF,
        _HALF,
        10,
        "unlabeled",
    ),
    "tiny-imagenet": Dataset(
        "relatum.data.sets.tiny_imagenet:load", "100,000 + 10,000 images, 200 classes", 64, 8, _HALF, _QUARTER, 200
    ),
    "slimagenet": Dataset(
        "relatum.data.sets.slimagenet:load",
        "160 + 20 + 20 images in each of 1,000 classes",
        64,
        8,
        _HALF,
        _QUARTER,
        1000,
    ),
    "shapes": Dataset(
        "relatum.data.sets.shapes:load", "made in code: ten shapes, colour says nothing", 32, 4, _HALF, _QUARTER, 10
    ),
}


def cutout_area(dataset: str) -> float:
    """What the finetune chain blanks of a view of that dataset, or of a folder."""
    return DATASETS[dataset].cutout_area if dataset in DATASETS else Dataset.cutout_area


def find(table: Mapping[str, Any], what: str, name: str) -> Any:
    """A row by its name, or an error with the nearest name."""
    if name not in table:
        raise unknown(what, name, table)
    return table[name]


def resolve(target: str) -> Any:
    """Import what a row names as `module:attribute`."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)
