"""Finetuning: a copy of the backbone and a linear classifier are trained on labels. The run's weights stay as they are.

The paper's appendix: Adam with 1e-3 for the classifier and 1e-4 for the backbone, batch 32, ÷10 at 50 % and 75 % of
100 epochs (the main text says 20), affine and cutout. The authors' public script (`preset=official`) swaps the two
rates, adds weight decay, uses batch 128, never decays within 100 epochs and does not augment.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from relatum import rng, views
from relatum.backbones import evaluating, feature_size, seeded_dropout
from relatum.config.protocols import FinetuneSettings
from relatum.config.schedule import step_decay
from relatum.config.settings import table
from relatum.data.imageset import ImageSet
from relatum.data.stream.images import is_streamed
from relatum.errors import RelatumError
from relatum.evaluation.linear import classifier, scores
from relatum.evaluation.task import Outcome, Task
from relatum.features import normalise
from relatum.runs.folder import RunFolder
from relatum.system.progress import bar

_TEST_BATCH = 512  # images per forward pass


class Trainer:
    """A copy of a backbone with a classifier, and the steps that train both.

    Args:
        backbone: it is copied and not changed.
        images: the labelled training images.
        labels: their labels.
        settings: resolved settings.
        seed: of the classifier's weights, the order and the views.
    """

    def __init__(
        self, backbone: nn.Module, images: ImageSet, labels: NDArray[np.int64], settings: FinetuneSettings, seed: int
    ) -> None:
        assert settings.lr is not None
        assert settings.backbone_lr is not None
        assert settings.cutout_area is not None
        self.images, self.labels, self.settings, self.seed = images, labels, settings, seed
        self.device = next(backbone.parameters()).device
        self.backbone = copy.deepcopy(backbone).requires_grad_(True).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.classifier = classifier(feature_size(backbone, images.side), images.num_classes, seed).to(self.device)
        groups = [
            {"params": list(self.classifier.parameters()), "lr": settings.lr, "base": settings.lr},
            {"params": list(self.backbone.parameters()), "lr": settings.backbone_lr, "base": settings.backbone_lr},
        ]
        self.optimizer = torch.optim.Adam(groups, weight_decay=settings.weight_decay or 0.0)
        self.policy = replace(views.POLICIES["finetune"], cutout_area=settings.cutout_area)

    @property
    def batches(self) -> list[slice]:
        """The batches of an epoch; a last one of a single image is dropped, since batch-norm cannot use it."""
        size, count = self.settings.batch_size or 1, len(self.images)
        batches = [slice(start, min(start + size, count)) for start in range(0, count, size)]
        last = batches[-1]
        return batches[:-1] if len(batches) > 1 and last.stop - last.start == 1 else batches

    def epoch(self, number: int, advance: Callable[[], object] = lambda: None) -> None:
        """Train for one epoch; its order and its views are functions of the seed and its number."""
        factor = step_decay(number, self.settings.epochs) if self.settings.schedule == "step" else 1.0
        for group in self.optimizer.param_groups:
            group["lr"] = group["base"] * factor
        order = rng.permutation(len(self.images), rng.PROBE, self.seed, number)
        self.backbone.train()
        for batch in self.batches:
            indices = order[batch]
            targets = torch.from_numpy(self.labels[indices]).to(self.device)
            self.optimizer.zero_grad(set_to_none=True)
            with seeded_dropout(self.device, rng.PROBE, self.seed, number, batch.start):
                loss = F.cross_entropy(self.classifier(self.backbone(self.inputs(indices, number))), targets)
                loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            advance()

    def inputs(self, indices: NDArray[np.int64], epoch: int) -> Tensor:
        """A batch of training images augmented and normalised."""
        images = self.images
        if self.settings.augmentation == "none":
            return normalise(images.images[indices], images.mean, images.std, self.device)
        height, width = images.images.shape[1:3]
        params = views.sample(
            self.policy,
            seed=self.seed,
            epoch=epoch,
            indices=indices,
            views=1,
            height=height,
            width=width,
            pad=images.pad,
            side=images.side,
        )
        pixels, rows = images.images, indices
        if is_streamed(pixels):
            pixels, rows = pixels[indices], np.arange(len(indices))
        batch = views.make_views(pixels, rows, params, side=images.side, mean=images.mean, std=images.std)
        return batch.to(self.device)

    def predict(self, images: ImageSet) -> NDArray[np.int64]:
        """The classes of clean images, in eval mode."""
        predicted = []
        with evaluating(self.backbone), torch.no_grad():
            for start in range(0, len(images), _TEST_BATCH):
                x = normalise(images.images[start : start + _TEST_BATCH], images.mean, images.std, self.device)
                logits = self.classifier(self.backbone(x))
                if not bool(logits.isfinite().all()):
                    raise RelatumError(
                        "finetuning diverged; lower its rates with --set lr=... and --set backbone_lr=..."
                    )
                predicted.append(logits.argmax(1).cpu().numpy())
        return np.concatenate(predicted)


def run(task: Task) -> Outcome:
    """The protocol: train a copy, report the test accuracy after the last epoch."""
    train, test = task.train, task.test
    test_labels = task.labels(test)
    settings = task.settings.resolve(task.recipe.preset, train.name)
    trainer = Trainer(task.backbone, train, task.labels(train), settings, task.seed)
    curve: dict[int, float] = {}
    predicted = np.empty(0, np.int64)
    with bar("finetuning", settings.epochs * len(trainer.batches), show=task.progress) as advance:
        for epoch in range(settings.epochs):
            trainer.epoch(epoch, advance)
            if (epoch + 1) % settings.test_every == 0 or epoch + 1 == settings.epochs:
                predicted = trainer.predict(test)
                curve[epoch + 1] = 100.0 * float((predicted == test_labels).mean())
            advance(0, note=f"epoch {epoch + 1}, test {list(curve.values() or [0.0])[-1]:.2f} %")
    accuracy, per_class = scores(predicted, test_labels, train.classes)
    best = max(curve, key=lambda e: (curve[e], -e))
    details: dict[str, Any] = {
        "per_class": per_class,
        "classes": list(train.classes),
        "curve": {str(e): value for e, value in curve.items()},
        "best_epoch": best,
        "best_accuracy": curve[best],
    }
    if settings.save:
        details["weights"] = _save(task, trainer)
    facts = {
        **table(settings),
        "probe": "online: the whole network is trained",
        "backbone": "a copy, trained",
        "batch_norm": "train in training, eval in the test",
        "optimizer": "adam",
        "reported": "last epoch",
    }
    return Outcome(accuracy, details, facts, n_train=len(train))


def _save(task: Task, trainer: Trainer) -> str:
    from relatum.runs.weights import save_weights

    path = RunFolder(task.run).finetuned(task.stem)
    state = {f"backbone.{k}": v for k, v in trainer.backbone.state_dict().items()}
    state |= {f"classifier.{k}": v for k, v in trainer.classifier.state_dict().items()}
    save_weights(path, state, {**getattr(task.backbone, "info", {}), "classes": list(trainer.images.classes)})
    return str(path.relative_to(task.run))
