"""`Task`: the input of a protocol, and `Outcome`: its result.

Only this module decides which images a probe is trained and tested on. `test`: the dataset's own splits. `val`: the
part of the training set that the run held out; for a folder, exactly these images, identified by their content. A
held-out part is never used to train a probe.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from relatum import data as sources
from relatum import registry
from relatum.config import Recipe
from relatum.data import sets
from relatum.data.fingerprint import matches
from relatum.data.imageset import ImageSet
from relatum.data.paths import Absent
from relatum.errors import InputError
from relatum.features import Features, cached
from relatum.runs.folder import RunFolder
from relatum.runs.heldout import find_held_out, read_held_out
from relatum.runs.names import evaluation_stem
from relatum.system.progress import Display

# What all protocols on frozen features have in common, for the result.
OFFLINE = {"probe": "offline", "augmentation": "none", "batch_norm": "eval (frozen statistics)", "backbone": "frozen"}


@dataclass
class Outcome:
    """The result of a protocol.

    Attributes:
        accuracy: percent, or None.
        details: goes into the result as it is.
        protocol: facts about the procedure that are not settings: augmentation, batch-norm mode, ...
        n_train: number of training images.
        n_test: number of test images, if not all of the split were used.
    """

    accuracy: float | None
    details: dict[str, Any] = field(default_factory=dict)
    protocol: dict[str, Any] = field(default_factory=dict)
    n_train: int = 0
    n_test: int | None = None


def no_labels(images: str, protocol: str) -> InputError:
    """The error for a protocol that needs labels on images without any."""
    return InputError(
        f"{images} has no labels, and {protocol} evaluation needs them: put the images of each class into a separate"
        " sub-folder.\n"
        "Without labels there are `relatum evaluate tsne`, `relatum evaluate retrieval` and `relatum search`."
    )


@dataclass
class Task:
    """One evaluation to do.

    Attributes:
        run: the run's folder.
        recipe: how it was pretrained.
        backbone: frozen, in eval mode.
        data: a dataset's name or a folder.
        split: `test` or `val`.
        settings: the settings of the protocol.
        seed: for every draw of the protocol.
        needs_labels: whether images without labels are an error.
        root: of the datasets.
        tag: part of the artifacts' names.
        progress: show bars.
    """

    run: Path
    recipe: Recipe
    backbone: nn.Module
    data: str
    split: str
    settings: Any
    seed: int
    protocol: str = ""
    needs_labels: bool = True
    root: Path | None = None
    tag: str = ""
    progress: bool = True

    @cached_property
    def test(self) -> ImageSet:
        """The images that are tested on."""
        return self._labelled(self._held_out if self.split == "val" else self._test_split())

    @cached_property
    def train(self) -> ImageSet:
        """The images that a probe may learn from."""
        images = self._labelled(self._parts[0])
        limit = getattr(self.settings, "limit_train", None)
        return images if limit is None else sources.limit(images, limit, self.seed)

    def labels(self, images: ImageSet) -> NDArray[np.int64]:
        """The labels of images that must have some."""
        if images.labels is None:
            raise no_labels(f"{images.name} ({images.split})", self.protocol)
        return images.labels

    def features(self, images: ImageSet) -> Features:
        """Representations by the frozen backbone, cached in the run folder."""
        return cached(self.backbone, images, RunFolder(self.run).features, progress=self.progress)

    @property
    def stem(self) -> str:
        """PROTOCOL-DATASET-SPLIT[-TAG], which names all files of this evaluation."""
        return evaluation_stem(self.protocol, self.test.name, self.test.split, self.tag)

    @property
    def fraction(self) -> float:
        """The fraction of the training set that is held out."""
        setting = getattr(self.settings, "val_fraction", None)
        if setting is not None:
            return float(setting)
        pretrained_on = self.split == "val" or self._same_images
        return self.recipe.data.val_fraction if pretrained_on else 0.0

    @property
    def _same_images(self) -> bool:
        names = {self.data, self.recipe.data.name}
        if sets.same_images(self.data, self.recipe.data.name):
            return True
        folders = {Path(name).resolve() for name in names - registry.DATASETS.keys()}
        return len(folders) == 1 and not names & registry.DATASETS.keys()

    def _labelled(self, images: ImageSet) -> ImageSet:
        if self.needs_labels:
            self.labels(images)
        return images

    def _load(self, name: str, split: str) -> ImageSet:
        """Load images: the training data and folders with the backbone's preprocessing, other datasets with theirs."""
        if name in registry.DATASETS and not self._same_images:
            return sources.load(name, split, root=self.root)
        known = self.recipe.data
        return sources.load(name, split, root=self.root, side=known.side, mean=known.mean, std=known.std)

    def _test_split(self) -> ImageSet:
        try:
            return self._load(self.data, "test")
        except Absent:  # a split that is there and cannot be read is an error: another one is no answer
            if self.needs_labels or self.data in registry.DATASETS:
                raise
            return self._load(self.data, "train")  # a plain folder: all of it, and the result says `train`

    @cached_property
    def _parts(self) -> tuple[ImageSet, ImageSet | None]:
        """The training set without its held-out part, and that part."""
        images = self._load(self.data, "train")
        if not self.fraction:
            return images, None
        if (parts := self._recorded_parts(images)) is not None:
            return parts
        # The part is balanced by the labels that pretraining saw: CIFAR-100's fine ones, also under its coarse labels.
        other = self.data != self.recipe.data.name and sets.same_images(self.data, self.recipe.data.name)
        balanced = self._load(self.recipe.data.name, "train") if other else images
        numbers = replace(balanced, images=np.arange(len(balanced)), files=None)  # type: ignore[arg-type]
        rest, held = sources.split_validation(numbers, self.fraction, self.recipe.seed)
        return (
            images.subset(rest.images.astype(np.int64)),
            replace(images.subset(held.images.astype(np.int64)), split="val"),
        )

    def _recorded_parts(self, images: ImageSet) -> tuple[ImageSet, ImageSet] | None:
        """The parts of a folder as the run had them, by content; None where the seed alone decides.

        Raises:
            InputError: images of the run's folder that it was trained on could be taken for held-out ones.
        """
        name, fraction = self.recipe.data.name, getattr(self.settings, "val_fraction", None)
        if fraction not in (None, self.recipe.data.val_fraction) or {name, self.data} & registry.DATASETS.keys():
            return None
        digests = read_held_out(RunFolder(self.run))
        if digests is None:
            self._check_unchanged(images)
            return None
        held = find_held_out(images, digests)
        if not held.any():
            if not self._same_images:
                return None  # other images: none of them was trained on
            raise InputError(
                f"none of the {len(digests)} images that {self.run} held out is in {self.data} any more: "
                "the images were changed, or this version of Pillow decodes them differently."
            )
        if missing := len(digests) - int(held.sum()):
            Display().warn(
                f"{missing} of the {len(digests)} images that {self.run} held out are not in {self.data} any more; "
                f"the other {int(held.sum())} are used."
            )
        return images.subset(np.flatnonzero(~held)), replace(images.subset(np.flatnonzero(held)), split="val")

    def _check_unchanged(self, images: ImageSet) -> None:
        """Refuse a folder that has changed since a run that does not list its held-out images (an older one)."""
        section = self.recipe.data
        if not self._same_images or not section.fingerprint or not section.val_fraction:
            return
        trained, _ = sources.split_validation(images, section.val_fraction, self.recipe.seed)
        if section.limit_train:
            trained = sources.limit(trained, section.limit_train, self.recipe.seed)
        if not matches(trained, section.fingerprint):
            raise InputError(
                f"{self.data} has changed since {self.run} was trained, and that run does not list the images that it "
                "held out: held-out images could have been trained on.\n"
                "Restore the folder, or hold a new part out of the probe alone: --set val_fraction=0.2."
            )

    @property
    def _held_out(self) -> ImageSet:
        held = self._parts[1]
        if held is not None:
            return held
        try:
            return self._load(self.data, "val")
        except Absent:
            raise InputError(
                f"{self.run} held out no part of {self.data}, so there is no 'val' split.\n"
                "Pretrain with --val-fraction 0.2, or hold a part out of the probe alone: --set val_fraction=0.2."
            ) from None
