"""The methods that came after the paper: their options and their rows of the table of methods. No torch here.

The defaults of the options are those of the preset `paper`: the head of the paper's comparison (256 hidden units, 64
outputs), and the loss weights, temperatures and momenta of each method's own paper where they fit small images and
short runs.
`docs/methods.md` has the source of every value of the preset `official`.
"""

from __future__ import annotations

from dataclasses import dataclass

from relatum.config.method import Method
from relatum.config.settings import setting

_HIDDEN = "hidden units of the projection head"
_PROJECTION = "output size of the projection head"
_LAYERS = "linear layers of the projection head"
_MOMENTUM = "momentum of the target network; it rises to 1 along a cosine"
_FREEZE = "epochs at the start in which the prototypes are not trained"


@dataclass(frozen=True)
class BYOLOptions:
    """Options of BYOL."""

    momentum: float = setting(0.99, _MOMENTUM, ge=0, le=1)
    hidden: int = setting(256, "hidden units of the projection head and of the predictor", ge=1)
    projection: int = setting(64, _PROJECTION, ge=1)


@dataclass(frozen=True)
class SimSiamOptions:
    """Options of SimSiam."""

    hidden: int = setting(256, _HIDDEN, ge=1)
    projection: int = setting(64, _PROJECTION, ge=1)
    predictor: int = setting(256, "hidden units of the predictor", ge=1)


@dataclass(frozen=True)
class BarlowOptions:
    """Options of Barlow Twins."""

    redundancy: float = setting(0.005, "weight of the off-diagonal of the cross-correlation", ge=0)
    hidden: int = setting(256, _HIDDEN, ge=1)
    projection: int = setting(64, _PROJECTION, ge=1)
    layers: int = setting(2, _LAYERS, ge=2)


@dataclass(frozen=True)
class VICRegOptions:
    """Options of VICReg."""

    invariance: float = setting(25.0, "weight of the squared distance between views", ge=0)
    variance: float = setting(25.0, "weight of the hinge that keeps the standard deviation above 1", ge=0)
    covariance: float = setting(1.0, "weight of the squared covariances", ge=0)
    hidden: int = setting(256, _HIDDEN, ge=1)
    projection: int = setting(64, _PROJECTION, ge=1)
    layers: int = setting(2, _LAYERS, ge=2)


@dataclass(frozen=True)
class MoCoOptions:
    """Options of MoCo."""

    temperature: float = setting(0.2, "temperature of the softmax", gt=0)
    momentum: float = setting(0.99, "momentum of the key encoder, constant", ge=0, le=1)
    queue: int = setting(4096, "keys in the queue of negatives", ge=1)
    hidden: int = setting(256, _HIDDEN, ge=1)
    projection: int = setting(64, _PROJECTION, ge=1)


@dataclass(frozen=True)
class DINOOptions:
    """Options of DINO."""

    prototypes: int = setting(256, "outputs of the head, the dimensions of the distributions", ge=2)
    temperature: float = setting(0.1, "temperature of the student's softmax", gt=0)
    target_temperature: float = setting(0.02, "temperature of the teacher's softmax (sharpening)", gt=0)
    center_momentum: float = setting(0.9, "momentum of the centre that is subtracted from the teacher", ge=0, le=1)
    momentum: float = setting(0.99, _MOMENTUM, ge=0, le=1)
    freeze_epochs: int = setting(0, _FREEZE, ge=0)
    hidden: int = setting(256, _HIDDEN, ge=1)
    projection: int = setting(64, "size of the bottleneck before the prototypes", ge=1)
    layers: int = setting(2, _LAYERS, ge=2)


@dataclass(frozen=True)
class SwAVOptions:
    """Options of SwAV."""

    prototypes: int = setting(128, "number of prototypes (clusters)", ge=1)
    temperature: float = setting(0.1, "temperature of the softmax", gt=0)
    epsilon: float = setting(0.03, "entropic regularisation of the Sinkhorn algorithm", gt=0)
    iterations: int = setting(3, "iterations of the Sinkhorn algorithm", ge=1)
    freeze_epochs: int = setting(0, _FREEZE, ge=0)
    hidden: int = setting(256, _HIDDEN, ge=1)
    projection: int = setting(64, _PROJECTION, ge=1)


@dataclass(frozen=True)
class EMPOptions:
    """Options of EMP-SSL."""

    similarity: float = setting(200.0, "weight of the similarity to the mean embedding", ge=0)
    epsilon: float = setting(0.2, "squared distortion of the coding rate", gt=0)
    hidden: int = setting(256, _HIDDEN, ge=1)
    projection: int = setting(64, _PROJECTION, ge=1)
    layers: int = setting(2, _LAYERS, ge=2)


_TWO_VIEWS = {"views.policy": "relational", "views.number": 2}
# CIFAR-10 in the appendix of the SimSiam paper; also used for methods whose own code has no settings for small images.
_SMALL_IMAGES = {
    "train.epochs": 800,
    "train.batch_size": 512,
    "train.optimizer": "sgd",
    "train.lr": 0.06,  # 0.03 x 512 / 256
    "train.weight_decay": 5e-4,
    "train.schedule": "cosine",
}
_WIDE_HEAD = {"objective.hidden": 2048, "objective.projection": 2048, "objective.layers": 3}  # 8192 on ImageNet

MODERN_METHODS: dict[str, Method] = {
    "byol": Method(
        target="relatum.objectives.byol:BYOL",
        title="BYOL",
        summary="BYOL: predict the output of a slowly moving copy of the network for another view",
        options=BYOLOptions,
        defaults=_TWO_VIEWS,
        official={
            **_SMALL_IMAGES,
            "objective.momentum": 0.996,
            "objective.hidden": 4096,
            "objective.projection": 256,
        },
    ),
    "simsiam": Method(
        target="relatum.objectives.simsiam:SimSiam",
        title="SimSiam",
        summary="SimSiam: predict the projection of another view, with a stopped gradient",
        options=SimSiamOptions,
        defaults=_TWO_VIEWS,
        official={
            **_SMALL_IMAGES,
            "objective.hidden": 2048,
            "objective.projection": 2048,
            "objective.predictor": 512,
        },
    ),
    "barlow": Method(
        target="relatum.objectives.barlow:BarlowTwins",
        title="Barlow Twins",
        summary="Barlow Twins: views agree in each coordinate, and coordinates do not repeat one another",
        options=BarlowOptions,
        defaults=_TWO_VIEWS,
        official={**_SMALL_IMAGES, **_WIDE_HEAD, "objective.redundancy": 0.0051},
    ),
    "vicreg": Method(
        target="relatum.objectives.vicreg:VICReg",
        title="VICReg",
        summary="VICReg: invariance between views, variance of and no covariance between coordinates",
        options=VICRegOptions,
        defaults=_TWO_VIEWS,
        official={**_SMALL_IMAGES, **_WIDE_HEAD},
    ),
    "moco": Method(
        target="relatum.objectives.moco:MoCo",
        title="MoCo",
        summary="MoCo: contrastive learning against a queue of keys from a momentum encoder",
        options=MoCoOptions,
        defaults=_TWO_VIEWS,
        official={
            **_SMALL_IMAGES,
            "train.epochs": 200,
            "objective.temperature": 0.1,
            "objective.hidden": 512,
            "objective.projection": 128,
        },
    ),
    "dino": Method(
        target="relatum.objectives.dino:DINO",
        title="DINO",
        summary="DINO: match the centred and sharpened output of a momentum teacher",
        options=DINOOptions,
        defaults=_TWO_VIEWS,
        official={
            **_SMALL_IMAGES,
            "views.small_number": 8,
            "objective.prototypes": 4096,  # 65,536 on ImageNet
            "objective.target_temperature": 0.04,
            "objective.momentum": 0.9995,  # 0.996 with mini-batches of 1,024
            "objective.freeze_epochs": 1,
            "objective.hidden": 2048,
            "objective.projection": 256,
            "objective.layers": 3,
        },
    ),
    "swav": Method(
        target="relatum.objectives.swav:SwAV",
        title="SwAV",
        summary="SwAV: predict the cluster of another view; clusters are balanced by Sinkhorn",
        options=SwAVOptions,
        defaults=_TWO_VIEWS,
        official={
            **_SMALL_IMAGES,
            "views.small_number": 6,
            "objective.prototypes": 512,  # 3,000 with mini-batches of 4,096, or with a queue of 3,840 features
            "objective.epsilon": 0.05,
            "objective.freeze_epochs": 1,
            "objective.hidden": 2048,
            "objective.projection": 128,
        },
    ),
    "emp": Method(
        target="relatum.objectives.emp:EMPSSL",
        title="EMP-SSL",
        summary="EMP-SSL: many patches per image agree with their mean; the coding rate of each stays high",
        options=EMPOptions,
        defaults={"views.policy": "relational", "views.number": 20},
        official={
            "views.policy": "patch",
            "train.batch_size": 100,
            "train.epochs": 30,
            "train.schedule": "cosine",
            "train.drop_last": True,
            "objective.hidden": 4096,
            "objective.projection": 1024,
            "objective.layers": 3,
        },
    ),
}
