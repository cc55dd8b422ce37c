"""Evaluates the backbone on clean images: features for objectives that need them, kNN accuracy, classifier logits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from relatum import data, features
from relatum.data import ImageSet
from relatum.errors import InputError
from relatum.features.knn import knn_accuracy
from relatum.objectives import Objective
from relatum.training.resolve import Resolved


def clean_features(backbone: nn.Module, images: ImageSet) -> Tensor:
    """Representations of clean images by the backbone as it is now, in eval mode."""
    with torch.compiler.set_stance("force_eager"):
        return torch.from_numpy(features.extract(backbone, images))


def load_test_images(resolved: Resolved, root: Path | None) -> tuple[ImageSet, str]:
    """The held-out part and `val`, or without one the test split and `test`, at the run's side and normalisation."""
    if resolved.validation is not None:
        return resolved.validation, "val"
    section = resolved.recipe.data
    images = data.load(section.name, "test", root=root, side=section.side, mean=section.mean, std=section.std)
    return images, "test"


def knn_monitor(resolved: Resolved, root: Path | None) -> Callable[[nn.Module], Mapping[str, float]] | None:
    """A function that measures kNN accuracy, or None where the recipe does not ask for it."""
    recipe, train = resolved.recipe, resolved.images
    if not recipe.log.knn_every:
        return None
    test, _ = load_test_images(resolved, root)
    train_labels, test_labels = train.labels, test.labels
    if train_labels is None or test_labels is None:
        raise InputError(f"--knn-every needs labels, and {recipe.data.name} has none.")

    def measure(backbone: nn.Module) -> Mapping[str, float]:
        z, test_z = (clean_features(backbone, images).numpy() for images in (train, test))
        return {"knn_accuracy": knn_accuracy(z, train_labels, test_z, test_labels)}

    return measure


def classifier_logits(objective: Objective, images: ImageSet) -> NDArray[np.floating[Any]]:
    """(N, classes) logits of clean images, by an objective with a classifier (`predict`)."""
    predict: Any = objective.predict
    with torch.no_grad():
        logits: Tensor = predict(clean_features(objective.backbone, images).to(next(objective.parameters()).device))
    return logits.cpu().numpy()
