"""The facts about datasets: complete, light to import, and found by name."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from relatum import registry
from relatum.data import sets
from relatum.data.sets import shapes
from relatum.errors import InputError, RelatumError


@pytest.mark.parametrize("name", sets.names())
def test_facts_agree_with_one_another(name: str) -> None:
    dataset = sets.get(name)
    assert dataset.name == name
    assert dataset.pretrain_split in dataset.splits
    assert {"train", "test"} <= dataset.splits.keys()
    assert dataset.pad == dataset.side // 8
    assert callable(registry.resolve(dataset.reader))
    if dataset.same_images:
        other = sets.get(dataset.same_images)
        assert other.same_images == name
        assert (other.splits, other.archive, other.mean) == (dataset.splits, dataset.archive, dataset.mean)


def test_lookups() -> None:
    assert [sets.title(name) for name in sets.names()] == [
        "CIFAR-10",
        "CIFAR-100",
        "CIFAR-100-20",
        "STL-10",
        "tiny-ImageNet",
        "SlimageNet64",
        "shapes",
    ]
    assert sets.same_images("cifar100", "cifar100-20")
    assert sets.same_images("cifar100-20", "cifar100")
    assert sets.same_images("./photos", "./photos")
    assert not sets.same_images("cifar10", "cifar100")
    assert not sets.same_images("cifar100", "./photos")
    with pytest.raises(InputError, match="did you mean 'cifar10'"):
        sets.get("cifar1")


def test_a_folder_has_defaults() -> None:
    assert sets.title("some/where/photos/") == "photos"
    assert sets.title("/") == "/"
    assert sets.cutout_area("some/where/photos") == 0.111
    assert sets.cutout_area("cifar10") == 0.25


def test_a_row_must_name_a_dataset_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.DATASETS, "figures", registry.DATASETS["shapes"])
    with pytest.raises(RelatumError, match=r"row 'figures' .* must name a Dataset of that name"):
        sets.get("figures")
    monkeypatch.setattr(shapes, "SHAPES", replace(shapes.SHAPES, name="figures"))
    assert sets.get("figures").side == 32


def test_facts_need_no_heavy_import() -> None:
    load = "from relatum.data import sets; [sets.get(name) for name in sets.names()]"
    code = f"import sys; {load}; assert not {{'numpy', 'PIL', 'torch', 'rich'}} & {{*sys.modules}}"
    subprocess.run([sys.executable, "-c", code], check=True)
