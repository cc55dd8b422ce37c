"""Supervised training and random weights: the bounds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small import agree, small_batch, small_objective

from relatum import backbones, config, data
from relatum.config.protocols import FinetuneSettings
from relatum.data import sets
from relatum.errors import InputError
from relatum.objectives.random import RandomWeights
from relatum.objectives.supervised import Supervised
from relatum.training.batches import BatchMaker


@pytest.mark.parametrize("views", [1, 3])
def test_the_loss_and_its_gradient_equal_a_loop_over_views(views: int) -> None:
    """With K views every view of an image carries its label."""
    objective = small_objective("supervised")
    batch = small_batch(views, 5)
    loss, metrics = objective(batch)
    total, right = torch.zeros((), dtype=torch.float64), 0
    representations = objective.backbone(batch.views.flatten(0, 1)).unflatten(0, (views, 5))
    for of_view in representations:
        for z, label in zip(of_view, batch.labels, strict=True):
            logits = objective.classifier.weight @ z + objective.classifier.bias
            total = total - logits[label] + torch.log(torch.exp(logits).sum())
            right += int(logits.argmax() == label)
    agree(objective, loss, total / (views * 5))
    assert float(metrics["accuracy"]) == pytest.approx(right / (views * 5))


def test_a_hidden_label_adds_nothing() -> None:
    objective = small_objective("supervised").eval()  # in eval mode the views do not see one another
    batch = small_batch(2, 6)
    hidden = batch.replace(labels=torch.where(torch.arange(6) < 4, batch.labels, -1))
    some = batch.replace(views=batch.views[:, :4], labels=batch.labels[:4])
    torch.testing.assert_close(objective(hidden)[0], objective(some)[0], rtol=0, atol=1e-12)
    nothing, metrics = objective(batch.replace(labels=torch.full((6,), -1)))
    assert float(nothing.detach()) == 0.0
    assert float(metrics["accuracy"]) == 0.0


def test_its_own_classifier_scores() -> None:
    objective = small_objective("supervised").eval()
    x = small_batch(1, 6).views[0]
    with torch.no_grad():
        logits = objective.predict(objective.backbone(x))
        assert logits.shape == (6, 3)
        assert torch.equal(logits, objective.classifier(objective.backbone(x)))


def test_labels_are_needed() -> None:
    objective = small_objective("supervised")
    with pytest.raises(ValueError, match="needs labels"):
        objective(small_batch(labels=False))
    with pytest.raises(InputError, match="needs labels"):
        Supervised(torch.nn.Identity(), 4, num_classes=0)


def test_on_stl10_it_is_finetuning_from_scratch() -> None:
    """The appendix: schedule and augmentations of finetuning, 100 epochs, on the labelled set."""
    recipe = config.draft(flags={"data.name": "stl10", "method": "supervised"}).recipe()
    train, tuned = recipe.train, FinetuneSettings().resolve("paper", "stl10")
    assert (train.optimizer, train.schedule, train.weight_decay) == ("adam", tuned.schedule, tuned.weight_decay)
    assert (train.lr, train.backbone_lr, train.batch_size) == (tuned.lr, tuned.backbone_lr, tuned.batch_size)
    assert (train.epochs, recipe.data.split, recipe.views.policy) == (tuned.epochs, "train", tuned.augmentation)
    assert round(96 * recipe.views.cutout_area**0.5) == 32


@pytest.mark.parametrize("dataset", [*sets.names(), "/a/folder"])
def test_cutout_is_that_of_finetuning(dataset: str) -> None:
    flags = {"data.name": dataset, "method": "supervised", "views.policy": "finetune"}
    recipe = config.draft(flags=flags).recipe()
    assert recipe.views.cutout_area == FinetuneSettings().resolve("paper", dataset).cutout_area
    assert config.draft(flags={**flags, "views.policy": "flip"}).recipe().views.cutout_area is None


@pytest.mark.parametrize(("dataset", "size"), [("stl10", 32), ("cifar10", 16), ("cifar100", 8)])
def test_views_are_blanked_by_the_datasets_patch(dataset: str, size: int) -> None:
    flags = {"data.name": dataset, "method": "supervised", "views.policy": "finetune"}
    side = sets.get(dataset).side
    pixels = np.zeros((32, side, side, 3), np.uint8)
    images = data.ImageSet(dataset, "train", pixels, None, (), (0.5,) * 3, (0.5,) * 3, 4)
    params = BatchMaker(images, config.draft(flags=flags).recipe()).make(0).params
    assert params is not None
    assert set(params.cutout[:, 2].tolist()) == {0, size}


def test_random_weights_are_those_of_the_seed_with_fresh_statistics() -> None:
    objective = RandomWeights(backbones.build("conv4", seed=1), 64)
    assert not any(name for name in objective.state_dict() if not name.startswith("backbone."))
    statistics = {name: value for name, value in objective.state_dict().items() if "running" in name}
    assert all(bool((value == ("var" in name)).all()) for name, value in statistics.items())
    with pytest.raises(ValueError, match="not trained"):
        objective(small_batch())
