"""A Lightning callback that measures kNN accuracy on clean images while a backbone is trained."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from torch import nn

from relatum.data import read_images
from relatum.data.imageset import ImageSet
from relatum.errors import InputError, require_positive
from relatum.features import extract
from relatum.features.knn import knn_accuracy

try:
    from lightning.pytorch import Callback
except Exception as error:  # not installed, or it imports a broken torchvision
    raise InputError(f"this callback needs Lightning ({error}): pip install lightning.") from None


class KNNMonitor(Callback):  # type: ignore[misc]
    """Logs `knn_accuracy` (percent) of a backbone every few epochs; training is not changed.

    Args:
        train: images that neighbours are taken from: an `ImageSet` with labels (`relatum.data.load`), or a list of
            paths, Pillow images, arrays or tensors.
        test: images that are classified, likewise; resized to the side of `train`.
        train_labels: labels of `train`, if it is not an `ImageSet`.
        test_labels: labels of `test`, if it is not an `ImageSet`.
        backbone: name of the backbone among the attributes of the LightningModule; dots are allowed.
        every: number of epochs between two measurements.
        options: side, mean and standard deviation (`side`, `mean`, `std`) for images that are not an `ImageSet`.
    """

    def __init__(
        self,
        train: Any,
        test: Any,
        *,
        train_labels: ArrayLike | None = None,
        test_labels: ArrayLike | None = None,
        backbone: str = "backbone",
        every: int = 1,
        options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        require_positive("every", every)
        self.train, of_train = _labelled(train, train_labels, options or {})
        self.test, of_test = _labelled(test, test_labels, {"side": self.train.side, **(options or {})})
        # Classes are numbered over both: the test images may lack some.
        numbers = np.unique(np.concatenate([of_train, of_test]), return_inverse=True)[1].astype(np.int64)
        self.train_labels, self.test_labels = numbers[: len(of_train)], numbers[len(of_train) :]
        self.backbone, self.every = backbone, every

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Measure and log."""
        if (trainer.current_epoch + 1) % self.every:
            return
        network: nn.Module = pl_module.get_submodule(self.backbone)
        z, test_z = (extract(network, images) for images in (self.train, self.test))
        pl_module.log("knn_accuracy", knn_accuracy(z, self.train_labels, test_z, self.test_labels), prog_bar=True)


def _labelled(images: Any, labels: ArrayLike | None, options: dict[str, Any]) -> tuple[ImageSet, Any]:
    if not isinstance(images, ImageSet):
        images = read_images(images, **options)
    known = images.labels if labels is None else np.asarray(labels)
    if known is None or len(known) != len(images):
        raise InputError(f"kNN accuracy needs a label for each of the {len(images)} images.")
    return images, known
