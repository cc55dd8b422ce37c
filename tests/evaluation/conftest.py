"""A tiny world to evaluate in: coloured noise in four classes, a run folder with a real backbone, and no disk datasets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from relatum import backbones, checkpoint, config, data
from relatum.data.imageset import ImageSet
from relatum.errors import InputError

CLASSES = ("ant", "bee", "cow", "doe")


def make_images(n: int, *, seed: int = 0, split: str = "train", name: str = "toy", labelled: bool = True) -> ImageSet:
    """Images of 16 × 16 whose class is told by the brightness of one quadrant, with much noise."""
    random = np.random.default_rng(seed)
    labels = np.arange(n) % len(CLASSES)
    images = random.integers(0, 200, (n, 16, 16, 3)).astype(np.uint8)
    for i, label in enumerate(labels):
        y, x = divmod(int(label), 2)
        images[i, y * 8 : y * 8 + 8, x * 8 : x * 8 + 8, label % 3] += 55
    return ImageSet(
        name=name,
        split=split,
        images=images,
        labels=labels.astype(np.int64) if labelled else None,
        classes=CLASSES if labelled else (),
        mean=(0.4, 0.4, 0.4),
        std=(0.25, 0.25, 0.25),
        pad=2,
    )


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], ImageSet]:
    """What `data.load` finds: (name, split) to images; tests may add to it."""
    found = {
        ("toy", "train"): make_images(200),
        ("toy", "test"): make_images(80, seed=1, split="test"),
        ("bare", "train"): make_images(60, name="bare", labelled=False),
    }

    def load(name: str, split: str = "train", **options: object) -> ImageSet:
        if (name, split) not in found:
            raise InputError(f"{name} has no '{split}' split.")
        return found[name, split]

    monkeypatch.setattr(data, "load", load)
    return found


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """Write a run folder with an untrained backbone, as `relatum pretrain --method random` would."""

    def make(name: str = "run", backbone: str = "conv4", **values: object) -> Path:
        run = tmp_path / name
        run.mkdir()
        flags = {"method": "random", "backbone.name": backbone, "data.name": "toy", "data.side": 16, **values}
        recipe = config.Draft(flags).recipe()
        (run / "recipe.toml").write_text(recipe.to_toml(), "utf-8")
        module = backbones.build(backbone, seed=recipe.seed)
        info = {"backbone": backbone, "num_features": 64, "mean": [0.4] * 3, "std": [0.25] * 3, "side": 16}
        info |= {"dataset": "toy", "method": "random", "preset": recipe.preset, "version": "0"}
        checkpoint.save_weights(run / checkpoint.BACKBONE, module.state_dict(), info)
        return run

    return make


@pytest.fixture
def run(world: object, make_run: Callable[..., Path]) -> Path:
    return make_run()


def relabelled(images: ImageSet, labels: np.ndarray, classes: tuple[str, ...]) -> ImageSet:
    return replace(images, labels=labels, classes=classes)
