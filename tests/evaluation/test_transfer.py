"""Domain transfer: what is evaluated on brings its own normalisation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from relatum.config.protocols import LinearSettings
from relatum.data.imageset import ImageSet
from relatum.evaluation.task import Task
from relatum.features import normalise
from relatum.runs.folder import read_recipe
from relatum.runs.weights import load_backbone


def test_images_are_normalised_with_the_statistics_of_the_dataset_they_are_from(
    world: dict[tuple[str, str], ImageSet], run: Path, make_images: Callable[..., ImageSet]
) -> None:
    far = replace(make_images(12, split="test", name="far"), mean=(0.1, 0.2, 0.3), std=(0.5, 0.4, 0.3))
    world["far", "test"] = far
    backbone = load_backbone(run)
    task = Task(run, read_recipe(run), backbone, "far", "test", LinearSettings(), 1, "linear")
    actual = task.features(task.test)
    with torch.no_grad():
        target, source = (
            backbone(normalise(far.images, *by)).numpy() for by in ((far.mean, far.std), ((0.4,) * 3, (0.25,) * 3))
        )
    np.testing.assert_allclose(actual, target, rtol=0, atol=1e-6)
    assert np.abs(actual - source).max() > 1e-2
