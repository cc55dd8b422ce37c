from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from relatum.config.protocols import FinetuneSettings
from relatum.data.imageset import ImageSet
from relatum.errors import RelatumError
from relatum.evaluation import evaluate
from relatum.evaluation.finetune import Trainer
from relatum.features import state_hash
from relatum.runs.weights import load_backbone

World = dict[tuple[str, str], ImageSet]


def trainer(run: Path, images: ImageSet, **settings: object) -> Trainer:
    assert images.labels is not None
    selected = FinetuneSettings(**settings).resolve("paper", images.name)  # type: ignore[arg-type]
    return Trainer(load_backbone(run), images, images.labels, selected, seed=1)


def test_presets_and_cutout() -> None:
    paper = FinetuneSettings().resolve("paper", "stl10")
    assert (paper.lr, paper.backbone_lr, paper.batch_size, paper.weight_decay) == (1e-3, 1e-4, 32, 0.0)
    assert (paper.schedule, paper.augmentation, paper.epochs, paper.cutout_area) == ("step", "finetune", 100, 0.111)
    official = FinetuneSettings(preset="official").resolve("paper", "cifar10")
    assert (official.lr, official.backbone_lr, official.batch_size, official.weight_decay) == (1e-4, 1e-3, 128, 1e-5)
    assert (official.schedule, official.augmentation, official.cutout_area) == ("constant", "none", 0.25)
    mixed = FinetuneSettings(preset="official", lr=0.5, augmentation="finetune").resolve("paper", "cifar100")
    assert (mixed.lr, mixed.augmentation, mixed.batch_size, mixed.cutout_area) == (0.5, "finetune", 128, 0.0625)
    assert FinetuneSettings().resolve("official", "cifar10").preset == "official"


@pytest.mark.parametrize(("schedule", "factors"), [("step", [1, 0.1, 0.01, 0.01]), ("constant", [1] * 4)])
def test_both_rates_follow_the_schedule(run: Path, world: World, schedule: str, factors: list[float]) -> None:
    finetuning = trainer(run, world["toy", "train"], epochs=4, schedule=schedule)
    for epoch, factor in zip((0, 2, 3, 3), factors, strict=True):
        finetuning.epoch(epoch)
        assert [g["lr"] for g in finetuning.optimizer.param_groups] == pytest.approx([1e-3 * factor, 1e-4 * factor])


def test_learns_changes_only_its_copy_and_says_how(run: Path) -> None:
    before = (run / "backbone.safetensors").read_bytes()
    result = evaluate("finetune", run, data="toy", epochs=8, settings={"lr": 0.01, "backbone_lr": 0.003})
    assert (run / "backbone.safetensors").read_bytes() == before
    assert result.accuracy is not None
    assert result.accuracy > 60
    assert result.details["backbone_unchanged"] is True
    curve = result.details["curve"]
    assert list(curve) == [str(e) for e in range(1, 9)]
    assert result.accuracy == curve["8"]  # the last epoch, not the best
    assert result.details["best_accuracy"] == max(curve.values())
    settings = result.settings
    assert settings["reported"] == "last epoch"
    assert settings["preset"] == "paper"
    assert settings["augmentation"] == "finetune"
    assert settings["batch_size"] == 32
    assert settings["lr"] == 0.01


def test_official_preset_runs(world: World, make_run: Callable[..., Path]) -> None:
    result = evaluate("finetune", make_run(preset="official"), data="toy", epochs=1)
    assert result.settings["preset"] == "official"
    assert result.settings["augmentation"] == "none"
    assert result.settings["weight_decay"] == 1e-5


def test_the_copy_is_trained_and_the_original_is_not(run: Path, world: World) -> None:
    finetuning = trainer(run, world["toy", "train"])
    backbone = load_backbone(run)
    before = state_hash(backbone)
    other = Trainer(backbone, finetuning.images, finetuning.labels, finetuning.settings, seed=1)
    other.epoch(0)
    assert state_hash(backbone) == before
    assert state_hash(other.backbone) != before
    assert all(not p.requires_grad for p in backbone.parameters())


def test_rates_of_the_two_parts(run: Path, world: World) -> None:
    finetuning = trainer(run, world["toy", "train"], epochs=4)
    finetuning.epoch(2)
    assert [g["lr"] for g in finetuning.optimizer.param_groups] == pytest.approx([1e-4, 1e-5])
    finetuning.epoch(3)
    assert [g["lr"] for g in finetuning.optimizer.param_groups] == pytest.approx([1e-5, 1e-6])


def test_same_seed_same_bits(run: Path, world: World) -> None:
    one, two = (trainer(run, world["toy", "train"]) for _ in range(2))
    for t in (one, two):
        t.epoch(0)
    assert state_hash(one.backbone) == state_hash(two.backbone)
    assert torch.equal(one.classifier.weight, two.classifier.weight)


def test_views_are_augmented_and_change_with_the_epoch(run: Path, world: World) -> None:
    finetuning = trainer(run, world["toy", "train"])
    selected = np.arange(32)
    one, again, later = finetuning.inputs(selected, 0), finetuning.inputs(selected, 0), finetuning.inputs(selected, 1)
    assert torch.equal(one, again)
    assert not torch.equal(one, later)
    plain = trainer(run, world["toy", "train"], augmentation="none")
    assert torch.equal(plain.inputs(selected, 0), plain.inputs(selected, 1))


def test_a_last_batch_of_one_image_is_dropped(run: Path, world: World) -> None:
    images = world["toy", "train"].subset(np.arange(33))
    finetuning = trainer(run, images)
    assert [b.stop - b.start for b in finetuning.batches] == [32]
    assert [b.stop - b.start for b in replace_batch(finetuning, 40).batches] == [33]


def replace_batch(finetuning: Trainer, size: int) -> Trainer:
    finetuning.settings = replace(finetuning.settings, batch_size=size)
    return finetuning


def test_divergence_is_reported(run: Path, world: World) -> None:
    finetuning = trainer(run, world["toy", "train"])
    with torch.no_grad():
        finetuning.classifier.bias.fill_(float("inf"))
    with pytest.raises(RelatumError, match="diverged"):
        finetuning.predict(world["toy", "test"])


def test_the_network_can_be_kept(run: Path) -> None:
    result = evaluate("finetune", run, data="toy", epochs=1, settings={"save": "true", "limit_train": 40})
    state = load_file(run / result.details["weights"])
    assert state["classifier.weight"].shape == (4, 64)
    assert "backbone.layer1.conv.weight" in state


def test_dropout_is_a_function_of_the_seed(run: Path, world: World) -> None:
    """Two epochs twice, each from another state of torch's global generator, which stays as it is."""
    images = world["toy", "train"]
    assert images.labels is not None
    settings = FinetuneSettings(epochs=2).resolve("paper", images.name)
    weights = []
    for number in range(2):
        backbone = load_backbone(run)
        dropping = torch.nn.Sequential(backbone, torch.nn.Dropout(0.5))
        dropping.num_features = backbone.num_features
        torch.manual_seed(number)
        state = torch.get_rng_state()
        finetuning = Trainer(dropping, images, images.labels, settings, seed=1)
        for epoch in range(2):
            finetuning.epoch(epoch)
        assert torch.equal(torch.get_rng_state(), state)
        weights.append([p.detach().clone() for p in finetuning.backbone.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))
