"""Options of the methods that came after the paper. No torch here; the rows are in `relatum.config.methods`.

The defaults belong to the fair environment: the head of the paper's comparison (256 hidden units, 64 outputs), and the
loss weights, temperatures and momenta of each method's own paper where they fit small images and short runs.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    predictor: int = setting(16, "hidden units of the predictor; a quarter of the projection in the paper", ge=1)


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

    temperature: float = setting(0.1, "temperature of the softmax", gt=0)
    momentum: float = setting(0.99, "momentum of the key encoder, constant", ge=0, le=1)
    queue: int = setting(4096, "keys in the queue of negatives", ge=1)
    hidden: int = setting(256, _HIDDEN, ge=1)
    projection: int = setting(64, _PROJECTION, ge=1)


@dataclass(frozen=True)
class DINOOptions:
    """Options of DINO."""

    prototypes: int = setting(256, "outputs of the head, the dimensions of the distributions", ge=2)
    temperature: float = setting(0.1, "temperature of the student's softmax", gt=0)
    target_temperature: float = setting(0.04, "temperature of the teacher's softmax (sharpening)", gt=0)
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
    epsilon: float = setting(0.05, "entropic regularisation of the Sinkhorn algorithm", gt=0)
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
