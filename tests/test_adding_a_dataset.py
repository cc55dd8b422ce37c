"""A new dataset is one file and one row: every command then knows it."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import relatum
import relatum.data
from relatum import registry
from relatum.cli.app import app
from relatum.data import download, sets
from relatum.errors import InputError

FILE = '''
"""Stripes: a dataset in one array file."""

from __future__ import annotations

from pathlib import Path

from relatum.data.dataset import Dataset

STRIPES = Dataset(
    name="stripes",
    title="Stripes-2",
    summary="generated stripes, 2 classes",
    reader=f"{__name__}:read",
    side=16,
    pad=2,
    mean=(0.4, 0.5, 0.6),
    std=(0.2, 0.2, 0.2),
    classes=2,
    splits={"train": 24, "test": 8},
    cutout_area=0.2,
    folder="stripes-1.0",
    files=("stripes.npz",),
    instructions="Write {folder}/stripes.npz.",
)


def read(dataset, split, root):
    import numpy as np

    from relatum.data.imageset import ImageSet
    from relatum.data.paths import locate

    content = np.load(locate(dataset, root) / "stripes.npz")
    images, labels = content[f"{split}_images"], content[f"{split}_labels"]
    return ImageSet.of(dataset, split, images, labels, ("across", "down"))
'''


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A data root that holds the dataset, with its file and its row in place."""
    (tmp_path / "stripes_dataset.py").write_text(FILE)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    monkeypatch.setitem(registry.DATASETS, "stripes", "stripes_dataset:STRIPES")
    folder = tmp_path / "root" / "stripes-1.0"
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    arrays = {}
    for split, number in (("train", 24), ("test", 8)):
        labels = np.arange(number) % 2
        images = random.integers(0, 60, (number, 16, 16, 3), dtype=np.uint8)
        for image, label in zip(images, labels, strict=True):
            (image[::4] if label else image[:, ::4])[:] += 150
        arrays |= {f"{split}_images": images, f"{split}_labels": labels}
    np.savez(folder / "stripes.npz", **arrays)
    yield folder.parent
    sys.modules.pop("stripes_dataset", None)


def test_it_is_loaded_listed_and_described(root: Path) -> None:
    images = relatum.data.load("stripes", "test", root=root)
    assert (len(images), images.name, images.side, images.pad) == (8, "stripes", 16, 2)
    assert images.labels is not None
    assert images.labels.tolist() == [0, 1] * 4
    rows = json.loads(CliRunner().invoke(app, ["list", "datasets", "--json"]).stdout)
    assert {"name": "stripes", "side": 16, "classes": 2}.items() <= rows[-1].items()
    assert rows[-1]["summary"] == "generated stripes, 2 classes; 16 × 16"
    facts = json.loads(CliRunner().invoke(app, ["data", "info", "stripes", "--root", str(root), "--json"]).stdout)
    assert {name: split["images"] for name, split in facts["splits"].items()} == {"train": 24, "test": 8}
    assert (facts["mean"], facts["classes"]) == ([0.4, 0.5, 0.6], ["across", "down"])
    assert download.get("stripes", root) == root / "stripes-1.0"
    assert (sets.title("stripes"), sets.cutout_area("stripes")) == ("Stripes-2", 0.2)


def test_it_is_missing(root: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="relatum data get stripes"):
        relatum.data.load("stripes", root=tmp_path / "empty")
    with pytest.raises(InputError, match=r"no address .* Write \S+/stripes-1.0/stripes.npz"):
        download.get("stripes", tmp_path / "empty")


def test_a_run_is_pretrained_and_evaluated_on_it(root: Path, tmp_path: Path) -> None:
    options = {"epochs": 1, "views": 2, "batch_size": 8, "compile": "off", "quiet": True, "root": root}
    run = relatum.pretrain("stripes", out=tmp_path / "run", **options)
    data = run.recipe.data
    assert (data.name, data.side, data.pad, data.mean, data.images) == ("stripes", 16, 2, (0.4, 0.5, 0.6), 24)
    assert (run.path / "backbone.safetensors").exists()
    result = relatum.evaluate("knn", run, data="stripes", root=root)
    assert (result.dataset, result.n_train, result.n_test) == ("stripes", 24, 8)
