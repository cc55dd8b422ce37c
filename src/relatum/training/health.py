"""Warns about a run that learns nothing: a loss that explodes, representations that collapse, predictions at chance.

The warnings appear while training runs, when a smaller learning rate or other data still help. The numbers come from
a forward pass in eval mode, at the end of each epoch, over one view of the first mini-batch of the run: it changes no
weight, buffer or draw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from relatum.backbones import evaluating
from relatum.errors import InputError

MOST_IMAGES = 256  # enough for a standard deviation; at 32×32 a pass of Conv-4 takes some 20 ms
# Spread-out representations of d features have a standard deviation near 1/√d. Random weights of Conv-4 reach a tenth
# of it on photographs, and a collapsed backbone a thousandth or less.
_COLLAPSED = 0.002
# Trained Conv-4s have an effective dimension of 7 to 18 on CIFAR-10 and 5 to 20 on `shapes`; n images fill up to n − 1.
_FEW_DIMENSIONS, _ENOUGH_IMAGES = 2.0, 32
_CHANCE, _CHANCE_STEPS = 0.02, 500
_CHANCE_LOSS = 0.002  # relative distance from the loss of uniform predictions
_DIVERGED = 100.0  # times the first logged loss


def spread(backbone: nn.Module, images: Tensor) -> dict[str, float]:
    """How much representations differ between images.

    Args:
        backbone: in any mode, which is restored.
        images: (M, C, H, W) normalised views, one per image; the first `MOST_IMAGES` are used.

    Returns:
        `feature_std`: the standard deviation over images of representations scaled to length one, averaged over the
        features. `effective_dimension`: the exponential of the entropy of the spectrum of their covariance, from 1
        (all on a line) to d; 0 if all are equal. Nothing for a single image, such as the share that one of several
        processes has of a short last mini-batch.
    """
    if len(images) < 2:
        return {}
    with torch.no_grad(), evaluating(backbone), torch.compiler.set_stance("force_eager"):
        z = backbone(images[:MOST_IMAGES].clone()).float().cpu().double()
    z = nn.functional.normalize(z, dim=1, eps=1e-12)
    if not bool(torch.isfinite(z).all()):
        return {"feature_std": float("nan"), "effective_dimension": float("nan")}
    centred = z - z.mean(0)
    gram = centred @ centred.T if len(z) < z.shape[1] else centred.T @ centred  # both have the same eigenvalues
    spectrum = torch.linalg.eigvalsh(gram).clamp(min=0)
    total = float(spectrum.sum())
    share = spectrum / total if total > 1e-18 * len(z) else spectrum[:0]
    entropy = -float(torch.special.xlogy(share, share).sum())
    return {
        "feature_std": float(centred.square().mean(0).sqrt().mean()),
        "effective_dimension": float(torch.tensor(entropy).exp()) if len(share) else 0.0,
    }


def check_reached(backbone: nn.Module) -> bool:
    """Refuse a backbone that got no gradient in a step: only the head would be trained."""
    if all(weight.grad is None for weight in backbone.parameters()):
        raise InputError(
            "no gradient reaches the backbone, so it would not be trained: does it compute without gradients"
            " (torch.no_grad, torch.inference_mode), or detach its output?"
        )
    return True


def unsaved_buffers(module: nn.Module) -> dict[str, Tensor]:
    """Copies of the buffers that are not in the state dict (`persistent=False`)."""
    saved = module.state_dict().keys()
    return {name: value.clone() for name, value in module.named_buffers() if name not in saved}


def warn_of_lost(module: nn.Module, before: Mapping[str, Tensor], warn: Callable[[str], None]) -> None:
    """Warn of `unsaved_buffers` that training has changed; one of another shape is a cache, not a state."""
    for name, value in unsaved_buffers(module).items():
        old = before.get(name)
        if old is not None and old.shape == value.shape and not torch.equal(old.to(value.device), value):
            warn(
                f"the backbone's buffer {name} changed in training, but is not in its state dict (persistent=False):"
                " the saved weights do not contain it, and a resumed run starts it anew."
            )


def not_finite(loss: Tensor, module: nn.Module) -> str:
    """A message if the loss, or the weights and buffers, are not finite; empty if all are finite."""
    if not bool(torch.isfinite(loss)):
        return f"the loss is {loss.item()}"
    return "" if all_finite(module) else "the weights are no longer finite"


def all_finite(module: nn.Module) -> bool:
    """Whether all weights and buffers are finite."""
    tensors = (value for value in module.state_dict().values() if isinstance(value, Tensor))
    return all(bool(torch.isfinite(value).all()) for value in tensors if value.is_floating_point())


class Health:
    """Warns when a run learns nothing.

    Args:
        num_features: size of a representation.
        warn: prints a line.
        chance_loss: the loss of a method whose predictions say nothing about the image, if it has one.
    """

    def __init__(self, num_features: int, warn: Callable[[str], None], chance_loss: float | None = None) -> None:
        self._num_features, self._warn, self._chance_loss = num_features, warn, chance_loss
        self._above_chance_at = 0  # the last step at which the loss was not that of chance
        self._first_loss: float | None = None
        self._learned_at = 0  # the last step at which pairs were told apart
        self._warned: set[str] = set()

    def check(self, row: Mapping[str, Any], *, images: int = MOST_IMAGES, last: bool = False) -> None:
        """Look at a logged row; each warning is printed once, and again with the last row of the run.

        Args:
            row: as written to `metrics.jsonl`.
            images: number of images that the spread was measured on.
            last: whether it is the last row of the run.
        """
        if last:
            self._warned.clear()
        if self._first_loss is None:  # of the run, or of a resume: nothing is known about the steps before
            self._first_loss = row["loss"]
            self._above_chance_at = self._learned_at = row["step"] - 1
        self._check_loss(row["loss"])
        if self._chance_loss is not None:
            self._check_chance(row["step"], row["loss"], self._chance_loss)
        if "feature_std" in row:
            self._check_spread(row["feature_std"], row["effective_dimension"], images)
        if "positive_accuracy" in row and "negative_accuracy" in row:
            self._check_pairs(row["step"], (row["positive_accuracy"] + row["negative_accuracy"]) / 2)

    def _check_loss(self, loss: float) -> None:
        assert self._first_loss is not None
        if loss > _DIVERGED * max(self._first_loss, 0.1):
            self._warn_once(
                "loss", f"the loss has grown from {self._first_loss:.3g} to {loss:.3g}: a smaller train.lr may help."
            )

    def _check_chance(self, step: int, loss: float, chance: float) -> None:
        if abs(loss - chance) > _CHANCE_LOSS * chance:
            self._above_chance_at = step
        if step - self._above_chance_at >= _CHANCE_STEPS:
            self._warn_once(
                "chance",
                f"the loss has been {chance:.3f}, that of uniform predictions, since step {self._above_chance_at:,}: "
                "the method has collapsed. Try objective.freeze_epochs=1, a smaller train.lr or weaker views.",
            )

    def _check_spread(self, std: float, dimension: float, images: int) -> None:
        if std * self._num_features**0.5 < _COLLAPSED or std != std:
            self._warn_once(
                "spread",
                f"the representations have collapsed: all images look the same to the backbone (feature_std {std:.1g}, "
                f"effective dimension {dimension:.1f} of {self._num_features}). Do the images differ? "
                "A smaller train.lr may help.",
            )
        elif dimension < _FEW_DIMENSIONS and images >= _ENOUGH_IMAGES:
            self._warn_once(
                "dimension",
                "the representations have collapsed to few dimensions: their effective dimension is "
                f"{dimension:.1f} of {self._num_features}. A smaller train.lr or another method may help.",
            )

    def _check_pairs(self, step: int, accuracy: float) -> None:
        if abs(accuracy - 0.5) > _CHANCE:
            self._learned_at = step
        if step - self._learned_at >= _CHANCE_STEPS:
            self._warn_once(
                "pairs",
                f"the relation head has been at chance ({100 * accuracy:.0f} % of pairs) since step "
                f"{self._learned_at:,}: nothing is learned. A smaller train.lr or weaker views may help.",
            )

    def _warn_once(self, kind: str, text: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            self._warn(text)
