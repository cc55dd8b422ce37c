"""Supervised training: the paper's upper bound. The only method whose loss always needs labels."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from relatum.errors import InputError
from relatum.objectives.base import Metrics, Objective, single
from relatum.objectives.batch import ViewsLike


class Supervised(Objective):
    """A linear classifier on the backbone, trained with cross-entropy.

    With K > 1 (the paper's study of the number of augmentations) all K views of an image carry its label.
    A hidden label (−1) adds nothing to the loss.

    Args:
        backbone: any module that maps (N, C, H, W) to (N, d).
        num_features: d.
        num_classes: how many classes there are.
    """

    needs = ("num_classes",)
    min_images = 2  # batch-norm over a single view of a single image has no variance on a 1×1 map

    def __init__(self, backbone: nn.Module, num_features: int, *, num_classes: int) -> None:
        super().__init__(backbone, num_features)
        if not num_classes:
            raise InputError("method 'supervised' needs labels, and this data has none.")
        self.classifier = nn.Linear(num_features, num_classes)

    def forward(self, batch: ViewsLike) -> tuple[Tensor, Metrics]:
        """Cross-entropy over all views with a label, and the share of them that were recognised."""
        batch = self.as_batch(batch)
        if batch.labels is None:
            raise ValueError("supervised training needs labels: pass a Batch with `labels`, not bare views.")
        labels = self.gather(batch.labels.to(batch.views.device).repeat(batch.views.shape[0]), batch)
        logits = self.predict(self.encode(batch))
        known = (labels >= 0).sum().clamp(min=1)
        loss = F.cross_entropy(logits, labels, ignore_index=-1, reduction="sum") / known
        correct = (logits.detach().argmax(1) == labels).sum() / known
        return loss, {"accuracy": correct}

    def predict(self, z: Tensor) -> Tensor:
        """Class logits (N, classes) of representations (N, d): the run's score is computed from them."""
        return single(self.classifier(z))
