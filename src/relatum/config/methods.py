"""The table of methods: one row each, with its options and what it changes in a recipe. No torch here.

A new method is one file in `relatum.objectives` and one row here. An option's default and choices are written once, in
the options class: recipes read them, and so does the constructor of the method's class.
"""

from __future__ import annotations

from dataclasses import dataclass

from relatum.config.method import Method
from relatum.config.modern_methods import MODERN_METHODS
from relatum.config.settings import setting

__all__ = [
    "METHODS",
    "PRESETS",
    "DeepClusterOptions",
    "DeepInfoMaxOptions",
    "Method",
    "RandomOptions",
    "RelationalOptions",
    "RotationOptions",
    "SimCLROptions",
    "SupervisedOptions",
]

# paper: the paper's settings; for methods that came after it, the paper's comparison (its head, views, optimiser and
# epochs). official: those of the authors' code, or of the method's own paper, scaled to small images. fast: a good
# result in little time (`relatum.config.conditions`).
PRESETS = ("paper", "official", "fast")


@dataclass(frozen=True)
class RelationalOptions:
    """Options of relational reasoning."""

    aggregation: str = setting(
        "cat", "how two representations are combined into one input", choices=("cat", "sum", "mean", "max")
    )
    head: str = setting(
        "relation",
        "module that scores a pair: MLP, dot product, or MLP encoder and dot product",
        choices=("relation", "dot", "encoder"),
    )
    negatives: str = setting(
        "roll", "how negative pairs are chosen: by rolling the mini-batch, or at random", choices=("roll", "random")
    )
    negatives_per_positive: int = setting(1, "negative pairs for each positive pair; the paper has 1", ge=1)
    gamma: float = setting(2.0, "exponent of the focal loss; at 0 the constant factor 1/2 remains", ge=0)
    focal: bool = setting(True, "use the focal loss; false is plain binary cross-entropy")
    hidden: int = setting(256, "hidden units of the relation head", ge=1)
    avoid_collisions: bool = setting(
        False, "semi-supervised training: do not use two images with the same known label as a negative pair"
    )


@dataclass(frozen=True)
class SimCLROptions:
    """Options of SimCLR."""

    temperature: float = setting(0.5, "temperature of the softmax", gt=0)
    loss: str = setting("nt-xent", "NT-Xent, or -log(mean p) as in the authors' code", choices=("nt-xent", "log-mean"))
    hidden: int = setting(256, "hidden units of the projection head", ge=1)
    projection: int = setting(64, "output size of the projection head", ge=1)


@dataclass(frozen=True)
class RotationOptions:
    """RotationNet has no options."""


@dataclass(frozen=True)
class DeepClusterOptions:
    """Options of DeepCluster."""

    clusters: int | None = setting(
        None, "number of clusters; by default 10 times the number of classes, or 100 without labels", ge=2
    )
    hidden: int = setting(256, "hidden units of the head", ge=1)
    reset: str = setting(
        "head", "layers that are reinitialised at each epoch: the head or its last layer", choices=("head", "last")
    )
    class_weights: bool = setting(False, "weight each cluster by 1 - its frequency, as in the authors' code")


@dataclass(frozen=True)
class DeepInfoMaxOptions:
    """Options of Deep InfoMax."""

    beta: float = setting(1.0, "weight of the local term", ge=0)
    gamma: float = setting(0.1, "weight of the prior term", ge=0)
    adversarial: bool = setting(
        True, "train the encoder against the prior discriminator; false minimises its loss, as in the authors' code"
    )
    hidden: int = setting(256, "channels of the local discriminator", ge=1)
    locations: int | None = setting(
        None, "random locations of the feature map used in a step; by default all of them", ge=1
    )


@dataclass(frozen=True)
class SupervisedOptions:
    """Supervised training has no options."""


@dataclass(frozen=True)
class RandomOptions:
    """Random weights have no options."""


METHODS: dict[str, Method] = {
    "relational": Method(
        target="relatum.objectives.relational:RelationalReasoning",
        title="Relational reasoning",
        summary="relational reasoning over K views: same image or not? (the paper's method)",
        options=RelationalOptions,
        defaults={"views.policy": "relational", "views.number": 32, "train.batch_size": 64},
        semi_supervised=True,
        label_option="avoid_collisions",
    ),
    "simclr": Method(
        target="relatum.objectives.simclr:SimCLR",
        title="SimCLR",
        summary="contrastive learning: NT-Xent between two views",
        options=SimCLROptions,
        defaults={"views.policy": "relational", "views.number": 2},
        official={"objective.loss": "log-mean"},
    ),
    "rotation": Method(
        target="relatum.objectives.rotation:RotationNet",
        title="RotationNet",
        summary="RotationNet: which of four rotations was applied?",
        options=RotationOptions,
        defaults={"views.policy": "rotation", "views.number": 4},
    ),
    "deepcluster": Method(
        target="relatum.objectives.deepcluster:DeepCluster",
        title="DeepCluster",
        summary="DeepCluster: predict k-means pseudo-labels, recomputed at each epoch",
        options=DeepClusterOptions,
        defaults={"views.policy": "padded-crop", "views.number": 1},
        official={"objective.reset": "last", "objective.class_weights": True},
    ),
    "deepinfomax": Method(
        target="relatum.objectives.deepinfomax:DeepInfoMax",
        title="Deep InfoMax",
        summary="Deep InfoMax: mutual information between local features and the representation",
        options=DeepInfoMaxOptions,
        defaults={"views.policy": "flip", "views.number": 1, "train.lr": 1e-4},
        official={"objective.adversarial": False, "train.drop_last": True},
    ),
    "supervised": Method(
        target="relatum.objectives.supervised:Supervised",
        title="Supervised",
        summary="supervised training: the upper bound",
        options=SupervisedOptions,
        defaults={
            "views.policy": "padded-crop",
            "views.number": 1,
            "train.optimizer": "sgd",
            "train.lr": 0.1,
            "train.schedule": "step",
        },
        uses_labels=True,
    ),
    "random": Method(
        target="relatum.objectives.random:RandomWeights",
        title="Random weights",
        summary="random weights: the lower bound",
        options=RandomOptions,
        defaults={"views.policy": "none", "views.number": 1, "train.epochs": 0},
        trains=False,
    ),
    **MODERN_METHODS,
}
