"""A tiny world to evaluate in: noise in four classes, a run folder with a real backbone, no datasets on disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from relatum import backbones, config, data
from relatum.data.imageset import ImageSet
from relatum.data.paths import Absent
from relatum.runs import names
from relatum.runs.weights import save_weights

CLASSES = ("ant", "bee", "cow", "doe")


def _images(n: int, *, seed: int = 0, split: str = "train", name: str = "toy", labelled: bool = True) -> ImageSet:
    """Noise of 16 × 16 with a tint that tells the class: red, green, blue, or none."""
    random = np.random.default_rng(seed)
    labels = np.arange(n) % len(CLASSES)
    images = random.integers(0, 190, (n, 16, 16, 3)).astype(np.uint8)
    for i, label in enumerate(labels):
        if label < 3:
            images[i, ..., label] += 60
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
def make_images() -> Callable[..., ImageSet]:
    return _images


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], ImageSet]:
    """What `data.load` finds: (name, split) to images; tests may add to it."""
    image_sets = {
        ("toy", "train"): _images(200),
        ("toy", "test"): _images(80, seed=1, split="test"),
        ("untested", "train"): _images(60, name="untested"),
        ("bare", "train"): _images(60, name="bare", labelled=False),
    }

    def load(name: str, split: str = "train", **options: object) -> ImageSet:
        if (name, split) not in image_sets:
            raise Absent(f"{name} has no '{split}' split.")
        return image_sets[name, split]

    monkeypatch.setattr(data, "load", load)
    return image_sets


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
        save_weights(run / names.BACKBONE, module.state_dict(), info)
        return run

    return make


@pytest.fixture
def run(world: object, make_run: Callable[..., Path]) -> Path:
    return make_run()
