"""The plain tables of everything that has a name: methods, backbones, datasets. No torch here.

A new method, backbone or dataset is one file and one row. A row names its code as `module:attribute`; it is imported
only when it is used, so `relatum --help` and `relatum list` stay instant.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from relatum.config.settings import setting
from relatum.errors import unknown

# --------------------------------------------------------------------------------------------------------- methods


@dataclass(frozen=True)
class RelationalOptions:
    """Relational reasoning (the paper's method)."""

    aggregation: str = setting("cat", "how two representations are joined", choices=("cat", "sum", "mean", "max"))
    head: str = setting("relation", "what compares a pair", choices=("relation", "dot", "encoder"))
    negatives: str = setting("roll", "how negatives are found", choices=("roll", "random"))
    gamma: float = setting(2.0, "focal exponent; 0 keeps the factor 1/2", ge=0)
    focal: bool = setting(True, "weight the cross-entropy; false is plain BCE, as in the paper's listing")
    hidden: int = setting(256, "hidden units of the head", ge=1)
    avoid_collisions: bool = setting(
        False, "semi-supervised: never pair two images known to share a class as negatives"
    )


@dataclass(frozen=True)
class SimCLROptions:
    """SimCLR with the same head, views and optimiser."""

    temperature: float = setting(0.5, "temperature of NT-Xent", gt=0)
    loss: str = setting("nt-xent", "NT-Xent, or the authors' -log(mean p)", choices=("nt-xent", "log-mean"))
    hidden: int = setting(256, "hidden units of the projection head", ge=1)
    projection: int = setting(64, "size of the projection", ge=1)


@dataclass(frozen=True)
class RotationOptions:
    """RotationNet: which of four rotations was applied?"""


@dataclass(frozen=True)
class DeepClusterOptions:
    """DeepCluster: predict k-means pseudo-labels, renewed each epoch."""

    clusters: int | None = setting(None, "number of clusters; by default 10 x classes (100 without labels)", ge=2)
    hidden: int = setting(256, "hidden units of the head", ge=1)
    reset: str = setting("head", "what is reset at each epoch", choices=("head", "last"))
    class_weights: bool = setting(False, "weigh each cluster by 1 - frequency (the authors' code)")


@dataclass(frozen=True)
class DeepInfoMaxOptions:
    """Deep InfoMax, local version with a prior."""

    beta: float = setting(1.0, "weight of the local objective", ge=0)
    gamma: float = setting(0.1, "weight of the prior", ge=0)
    adversarial: bool = setting(
        True, "an adversarial prior; false minimises the discriminator's own loss (the authors' code)"
    )
    hidden: int = setting(256, "channels of the local discriminator", ge=1)
    locations: int | None = setting(None, "random places of the map that a step compares; by default all of them", ge=1)


@dataclass(frozen=True)
class SupervisedOptions:
    """Supervised training: the upper bound."""


@dataclass(frozen=True)
class RandomOptions:
    """Random weights: the lower bound."""


@dataclass(frozen=True)
class Method:
    """A row of the table of methods.

    Attributes:
        target: the objective's class, `module:attribute`.
        summary: one line for people.
        options: the dataclass of its own settings, the recipe's `objective` table.
        defaults: what the method changes in a recipe, as dotted keys.
        official: what `preset = "official"` changes on top.
        uses_labels: whether batches carry labels; False means that it can never see one.
        semi_supervised: whether some labels may be shown to it (`--labels`): they choose what views are made from.
        trains: False for random weights.
    """

    target: str
    summary: str
    options: type
    defaults: Mapping[str, Any] = field(default_factory=dict)
    official: Mapping[str, Any] = field(default_factory=dict)
    uses_labels: bool = False
    semi_supervised: bool = False
    trains: bool = True


METHODS: dict[str, Method] = {
    "relational": Method(
        "relatum.objectives.relational:RelationalReasoning",
        "relational reasoning over K views: same image or not? (the paper's method)",
        RelationalOptions,
        {"views.policy": "relational", "views.number": 32, "train.batch_size": 64},
        semi_supervised=True,
    ),
    "simclr": Method(
        "relatum.objectives.simclr:SimCLR",
        "contrastive learning: NT-Xent between two views",
        SimCLROptions,
        {"views.policy": "relational", "views.number": 2},
        {"objective.loss": "log-mean"},
    ),
    "rotation": Method(
        "relatum.objectives.rotation:RotationNet",
        "RotationNet: which of four rotations was applied?",
        RotationOptions,
        {"views.policy": "rotation", "views.number": 4},
    ),
    "deepcluster": Method(
        "relatum.objectives.deepcluster:DeepCluster",
        "DeepCluster: predict k-means pseudo-labels, renewed each epoch",
        DeepClusterOptions,
        {"views.policy": "padded-crop", "views.number": 1},
        {"objective.reset": "last", "objective.class_weights": True},
    ),
    "deepinfomax": Method(
        "relatum.objectives.deepinfomax:DeepInfoMax",
        "Deep InfoMax: mutual information between local features and the representation",
        DeepInfoMaxOptions,
        {"views.policy": "flip", "views.number": 1, "train.lr": 1e-4},
        {"objective.adversarial": False, "train.drop_last": True},
    ),
    "supervised": Method(
        "relatum.objectives.supervised:Supervised",
        "supervised training: the upper bound",
        SupervisedOptions,
        {
            "views.policy": "padded-crop",
            "views.number": 1,
            "train.optimizer": "sgd",
            "train.lr": 0.1,
            "train.schedule": "step",
        },
        uses_labels=True,
    ),
    "random": Method(
        "relatum.objectives.random:RandomWeights",
        "random weights: the lower bound",
        RandomOptions,
        {"views.policy": "none", "views.number": 1, "train.epochs": 0},
        trains=False,
    ),
}

# ------------------------------------------------------------------------------------------------------- backbones


@dataclass(frozen=True)
class Backbone:
    """A row of the table of backbones: where its code is, and its size without a classifier."""

    target: str
    summary: str
    num_features: int
    parameters: int


BACKBONES: dict[str, Backbone] = {
    "conv4": Backbone("relatum.backbones.conv4:conv4", "four convolution blocks", 64, 24_648),
    "resnet8": Backbone("relatum.backbones.resnet_small:resnet8", "small ResNet, 16-32-64 channels", 64, 77_392),
    "resnet32": Backbone("relatum.backbones.resnet_small:resnet32", "small ResNet, 16-32-64 channels", 64, 466_256),
    "resnet56": Backbone("relatum.backbones.resnet_small:resnet56", "small ResNet, 16-32-64 channels", 64, 855_120),
    "resnet34": Backbone("relatum.backbones.resnet34:resnet34", "the standard ResNet-34", 512, 21_284_672),
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
