"""The paper's settings for particular runs."""

from __future__ import annotations

import pytest

from relatum import config, registry
from relatum.config import conditions
from relatum.config.methods import METHODS
from relatum.config.protocols import FinetuneSettings
from relatum.config.recipe import all_keys
from relatum.data import sets
from relatum.errors import InputError


@pytest.mark.parametrize("row", conditions.CONDITIONS, ids=str)
def test_a_row_uses_known_names_and_keys(row: conditions.Condition) -> None:
    assert row.method in ("", *METHODS)
    assert row.dataset in ("", *sets.names())
    assert row.backbone in ("", *registry.BACKBONES)
    assert row.values.keys() <= set(all_keys(row.method or "relational"))


@pytest.mark.parametrize(
    ("dataset", "backbone", "views"),
    [
        ("cifar10", "conv4", 32),
        ("slimagenet", "conv4", 16),
        ("slimagenet", "resnet32", 16),
        ("tiny-imagenet", "conv4", 32),
        ("tiny-imagenet", "resnet32", 16),
        ("stl10", "conv4", 32),
        ("stl10", "resnet34", 25),
        ("./photos", "resnet34", 32),
    ],
)
def test_number_of_views_of_relational_reasoning(dataset: str, backbone: str, views: int) -> None:
    assert config.defaults("relational", "paper", dataset, backbone)["views.number"] == views
    assert config.defaults("simclr", "paper", dataset, backbone)["views.number"] == 2


@pytest.mark.parametrize(
    ("method", "epochs", "batch_size", "policy", "split"),
    [
        ("relational", 300, 64, "relational", "unlabeled"),
        ("deepcluster", 300, None, "padded-crop", "unlabeled"),
        ("supervised", 100, 32, "finetune", "train"),
        ("random", 0, None, "none", "unlabeled"),
    ],
)
def test_stl10(method: str, epochs: int, batch_size: int | None, policy: str, split: str) -> None:
    values = config.defaults(method, "paper", "stl10", "resnet34")
    assert (values["train.epochs"], values.get("train.batch_size")) == (epochs, batch_size)
    assert (values["views.policy"], values["data.split"]) == (policy, split)


def test_the_fast_preset() -> None:
    values = config.defaults("relational", "fast", "cifar10", "conv4")
    assert (values["views.number"], values["views.strength"], values["train.schedule"]) == (8, 0.5, "cosine")
    assert values["train.lr"] == 4e-3
    assert "train.lr" not in config.defaults("relational", "fast", "cifar10", "resnet32")  # tuned for Conv-4 alone
    assert "views.strength" not in config.defaults("relational", "paper", "cifar10", "conv4")
    simclr = config.defaults("simclr", "fast", "cifar10", "conv4")
    assert (simclr["views.strength"], simclr["objective.temperature"], simclr["train.lr"]) == (0.5, 0.2, 4e-3)
    # the same number of views of each image for both methods
    assert simclr["views.number"] * simclr["train.epochs"] == values["views.number"] * values["train.epochs"]
    with pytest.raises(InputError, match="rotation has no preset fast"):
        config.defaults("rotation", "fast", "cifar10", "conv4")
    assert FinetuneSettings().resolve("fast", "cifar10") == FinetuneSettings().resolve("paper", "cifar10")
