"""The score of the classifier that a supervised run trains: the upper bound on its training dataset."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relatum.config.protocols import CLASSIFIER
from relatum.data.imageset import ImageSet
from relatum.errors import RelatumError
from relatum.evaluation.linear import scores
from relatum.runs.folder import read_recipe
from relatum.runs.results import Result, make_result


def save_classifier(
    run: str | Path, logits: NDArray[np.floating[Any]], images: ImageSet, *, split: str, n_train: int
) -> Result:
    """Write RUN/evaluations/classifier-DATASET-SPLIT.json.

    Args:
        run: the run folder.
        logits: (N, C) of clean images, by the network in eval mode after its last epoch.
        images: those images, with labels.
        split: `test` or `val`.
        n_train: images that the network learned from.
    """
    started = time.perf_counter()
    recipe = read_recipe(run)
    if images.labels is None or len(logits) != len(images):
        raise RelatumError(f"a classifier needs one label and one row of logits per image of {images.name}.")
    if not np.isfinite(logits).all():
        raise RelatumError(f"the classifier of {run} gives non-finite logits; training may have diverged.")
    accuracy, per_class = scores(logits.argmax(1), images.labels, images.classes)
    train = recipe.train
    result = make_result(
        Path(run),
        recipe,
        protocol=CLASSIFIER,
        dataset=images.name,
        split=split,
        accuracy=accuracy,
        settings={
            "probe": "none: the network's own classifier",
            "split": split,
            "seed": recipe.seed,
            "epochs": train.epochs,
            "batch_size": train.batch_size,
            "optimizer": train.optimizer,
            "lr": train.lr,
            "schedule": train.schedule,
            "momentum": train.momentum,
            "weight_decay": train.weight_decay,
            "side": images.side,
            "mean": list(images.mean),
            "std": list(images.std),
            "augmentation": f"{recipe.views.policy} in training, none in the test",
            "batch_norm": "train in training, eval in the test",
            "reported": "last epoch",
        },
        n_train=n_train,
        n_test=len(images),
        seconds=time.perf_counter() - started,
        details={"per_class": per_class, "classes": list(images.classes)},
    )
    result.pretrain["status"] = "finished"  # training is over; the run says so when its weights are written
    result.save(run)
    return result
