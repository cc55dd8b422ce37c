"""The interface between the training loop and a method.

An objective is an `nn.Module` that owns the backbone and its head. `forward(batch)` returns the loss and a few metrics;
methods that need only views also accept a plain tensor (K, M, C, H, W). `start_epoch` and `after_step` are optional
hooks. The training loop uses only this interface, never a concrete method.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from relatum.backbones import representations
from relatum.config import Recipe
from relatum.distributed import ALONE, World, convert
from relatum.errors import InputError
from relatum.objectives.batch import Batch, ViewsLike

Metrics = dict[str, Tensor]


@dataclass(frozen=True)
class EpochContext:
    """The information that an objective gets when an epoch starts.

    Attributes:
        seed, epoch: for draws.
        features: gives the (N, d) float32 representations of all clean training images, by the backbone in eval mode;
            row n is image n.
        print: prints a progress line.
    """

    seed: int
    epoch: int
    features: Callable[[], Tensor]
    print: Callable[[str], None] = lambda text: None


@dataclass(frozen=True)
class Context:
    """Facts about a run for the constructor of its objective, which names those that it needs in `Objective.needs`.

    Attributes:
        num_images: number of training images.
        num_classes: number of classes; 0 without labels.
        side: side of a view in pixels.
        kernels: implementation of the pairs: auto, numba, torch or reference.
    """

    num_images: int
    num_classes: int
    side: int
    kernels: str = "auto"


class Objective(nn.Module):
    """Base class of all methods.

    `objectives.build` calls `cls(backbone, num_features, **options, **needed)`, where the options are those of the
    method's row in `relatum.config.methods`, and `needed` are the fields of `Context` that the class names in `needs`.
    """

    backbone: nn.Module

    next_step: int
    """Number of the next call with bare views, which random draws are keyed by. It is not part of the state dict: a
    custom loop that resumes sets it to the number of steps already done."""

    needs: tuple[str, ...] = ()
    """The fields of `Context` that the constructor takes as keywords."""

    min_images: int = 1
    """The minimum number of images in a mini-batch; the training loop drops a last one that is shorter."""

    min_views: int = 1
    """The minimum number of views per image."""

    world: World = ALONE
    """The processes that share a mini-batch; see `connect`."""

    chance_loss: float | None = None
    """The loss of predictions that say nothing about the image, if there is one: training warns if it stays there."""

    uses_small_views: bool = False
    """Whether the loss reads `batch.small_views` (multi-crop, `views.small_number`)."""

    skips_parameters: bool = False
    """Whether some trained parameters get no gradient in some steps; several processes must know it."""

    def __init__(self, backbone: nn.Module, num_features: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.num_features = num_features
        self.next_step = 0

    def encoders(self) -> list[nn.Module]:
        """The modules that views pass through: the backbone, and the copies of it that a method keeps.

        All of them are compiled, and get the batch statistics of the whole mini-batch on several devices.
        """
        return [self.backbone]

    def connect(self, world: World) -> None:
        """Compute over the mini-batch of all processes from now on.

        `encode` and `gather` then give rows of the whole mini-batch, and encoders use its batch statistics. Heads work
        on gathered rows, so they need nothing.
        """
        self.world = world
        if world.size > 1:
            for encoder in self.encoders():
                convert(encoder, world.sum)

    @classmethod
    def check(cls, recipe: Recipe) -> None:
        """Refuse a recipe that the method cannot learn from; called before any data is loaded."""
        if recipe.views.number < cls.min_views:
            raise InputError(f"{recipe.method} needs at least {cls.min_views} views per image (--views).")
        if recipe.views.small_number and not cls.uses_small_views:
            raise InputError(f"{recipe.method} does not use small views: views.small_number must be 0.")

    def forward(self, batch: ViewsLike) -> tuple[Tensor, Metrics]:
        """The loss of one batch, and its metrics as detached scalars."""
        raise NotImplementedError

    def start_epoch(self, context: EpochContext) -> Iterable[nn.Parameter]:
        """Called before the first step of an epoch, never on a resume in mid-epoch.

        Returns:
            Parameters that were reinitialised: the optimiser drops its state for them.
        """
        return ()

    def after_step(self, step: int, total_steps: int) -> None:
        """Called after the optimiser's update of a step, without gradients: momentum encoders follow here.

        Args:
            step: number of the step, from 0; with `total_steps`, all that a schedule may depend on.
            total_steps: number of steps of the whole run.
        """

    def accelerate(self, compile: Callable[[nn.Module], Any]) -> None:
        """Apply `compile` to the parts worth compiling (by default the encoders)."""
        for encoder in self.encoders():
            compile(encoder)

    def head_state(self) -> dict[str, Tensor]:
        """The weights that are not the backbone's."""
        return {name: value for name, value in self.state_dict().items() if not name.startswith("backbone.")}

    def as_batch(self, batch: ViewsLike) -> Batch:
        """A batch from any input of `forward`, with as many images and views as the method needs.

        Bare views are numbered by `next_step`, so that their draws differ.
        """
        if not isinstance(batch, Batch):
            batch = Batch.of(batch).replace(step=self.next_step)
            self.next_step += 1
        name, images = type(self).__name__, batch.num_images
        if images < self.min_images:
            raise ValueError(f"{name} needs at least {self.min_images} images in a mini-batch, not {images}.")
        if len(batch.views) < self.min_views:
            raise ValueError(f"{name} compares views: it needs at least {self.min_views} of each image (views.number).")
        return batch

    def encode(self, batch: Batch, encoder: nn.Module | None = None, *, small: bool = False) -> Tensor:
        """All K·M views through the backbone in one pass: (K·M, d), row k·M + m is view k of image m.

        Where several processes share the mini-batch, each passes its own views and all get all rows.

        Args:
            batch: the mini-batch.
            encoder: another of `encoders`, in place of the backbone.
            small: encode the small views instead.
        """
        views = batch.small_views if small else batch.views
        assert views is not None
        views = views.flatten(0, 1)
        version = _version(views)
        z = representations((self.backbone if encoder is None else encoder)(views), len(views))
        if _version(views) != version and len(self.encoders()) > 1:  # the next encoder would get other views
            raise InputError(
                "the backbone changes its input in place: write x = x - mean, not x -= mean or x.sub_(mean)."
            )
        if z.shape[1] != self.num_features:
            raise ValueError(f"num_features is {self.num_features}, but the backbone gives ({z.shape[1]},) per view.")
        return self.gather(z, batch)

    def gather(self, rows: Tensor, batch: Batch) -> Tensor:
        """Rows for the views of this process (labels, targets, representations) as rows of the whole mini-batch."""
        return self.world.gather(rows, batch.num_images)

    def encode_all(self, batch: Batch) -> Tensor:
        """The K views and then the small ones, if there are any, each size in one pass: (`batch.all_views`·M, d)."""
        z = self.encode(batch)
        return z if batch.small_views is None else torch.cat([z, self.encode(batch, small=True)])


def mlp_head(num_features: int, hidden: int, outputs: int, layers: int = 2) -> nn.Sequential:
    """The paper's MLP head: d → hidden → BatchNorm → LeakyReLU(.01) → outputs; more hidden layers if asked for."""
    parts: OrderedDict[str, nn.Module] = OrderedDict()
    size = num_features
    for layer in range(1, layers):
        parts[f"linear{layer}"] = nn.Linear(size, hidden)
        parts[f"bn{layer}"] = nn.BatchNorm1d(hidden)
        parts["relu" if layer == 1 else f"relu{layer}"] = nn.LeakyReLU(0.01)
        size = hidden
    parts[f"linear{layers}"] = nn.Linear(size, outputs)
    return nn.Sequential(parts)


def _version(x: Tensor) -> int:
    """The number of changes of a tensor in place, as far as torch counts them."""
    return 0 if x.is_inference() else int(x._version)


def by_view(rows: Tensor, views: int) -> Tensor:
    """Rows of all views, (K·M, P), as (K, M, P)."""
    return rows.reshape(views, -1, rows.shape[1])


def single(x: Tensor) -> Tensor:
    """`x` in single precision at least: what losses are computed in, whatever autocast did before."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def accuracy(logits: Tensor, targets: Tensor) -> Tensor:
    """Share of correct predictions, detached."""
    with torch.no_grad():
        return (logits.argmax(1) == targets).float().mean()
