"""`evaluate --split val` on a folder that has changed: no image that was trained on is tested on."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
from PIL import Image

import relatum
from relatum import api, data
from relatum.data.fingerprint import _sampled, fingerprint, image_digests, matches
from relatum.errors import InputError
from relatum.runs.folder import RunFolder
from relatum.runs.heldout import find_held_out, read_held_out

FLAGS = {"views": 2, "batch_size": 9, "epochs": 1, "seed": 3, "compile": "off", "threads": 1, "quiet": True}


@pytest.fixture
def photos(pictures: Path, tmp_path: Path) -> Path:
    return Path(copytree(pictures, tmp_path / "photos"))


@pytest.fixture
def run(photos: Path, tmp_path: Path) -> api.Run:
    return relatum.pretrain(photos, out=tmp_path / "run", val_fraction=0.25, **FLAGS)


def add(folder: Path, *names: str) -> None:
    for name in names:
        pixels = np.random.default_rng(len(name)).integers(0, 256, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / name)


def parts_of(run: api.Run, photos: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[set[str], set[str]]:
    """Digests of the images that a probe learned from and was tested on."""
    from relatum.evaluation.task import Task

    seen: dict[str, set[str]] = {}
    real = Task.features

    def features(self: Task, images: data.ImageSet) -> np.ndarray:
        seen[images.split] = set(image_digests(images.images))
        return real(self, images)

    with monkeypatch.context() as patch:
        patch.setattr(Task, "features", features)
        relatum.evaluate("knn", run.path, data=photos, split="val", settings={"k": 1})
    return seen["train"], seen["val"]


def test_images_added_later_change_nothing(run: api.Run, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learned, tested = parts_of(run, photos, monkeypatch)
    assert len(tested) == 9
    assert read_held_out(RunFolder(run.path)) is not None
    add(photos / "across", "0.png", "000.png")
    learned_later, tested_later = parts_of(run, photos, monkeypatch)
    assert tested_later == tested
    assert learned < learned_later
    assert not learned_later & tested


def test_missing_images_are_reported(run: api.Run, photos: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    _, tested = parts_of(run, photos, monkeypatch)
    capsys.readouterr()
    images = data.load(photos)
    assert images.files is not None
    places = [i for i, digest in enumerate(image_digests(images.images)) if digest in tested]
    for place in places[:2]:
        (photos / images.files[place]).unlink()
    _, fewer = parts_of(run, photos, monkeypatch)
    assert fewer < tested
    assert len(fewer) == 7
    assert "2 of the 9 images" in capsys.readouterr().err
    for place in places[2:]:
        (photos / images.files[place]).unlink()
    with pytest.raises(InputError, match="none of the 9 images"):
        parts_of(run, photos, monkeypatch)


def test_a_moved_folder(run: api.Run, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, tested = parts_of(run, photos, monkeypatch)
    moved = photos.rename(photos.with_name("moved"))
    add(moved / "across", "0.png", "000.png")
    assert parts_of(run, moved, monkeypatch)[1] == tested


@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_a_run_without_the_list(run: api.Run, photos: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    _, tested = parts_of(run, photos, monkeypatch)
    place = RunFolder(run.path).held_out
    if damage == "missing":
        place.unlink()
    else:
        place.write_text('{"digests": "12')
    assert parts_of(run, photos, monkeypatch)[1] == tested
    add(photos / "across", "0.png", "000.png")
    with pytest.raises(InputError, match="does not list the images"):
        parts_of(run, photos, monkeypatch)
    new_part = relatum.evaluate("knn", run.path, data=photos, split="val", settings={"val_fraction": 0.5, "k": 1})
    assert new_part.n_test == 19


def test_equal_images_count_once_each() -> None:
    pixels = np.zeros((4, 8, 8, 3), np.uint8)
    pixels[3] = 1
    images = data.ImageSet("x", "train", pixels, None, (), (0.5,) * 3, (0.5,) * 3, 1)
    zero, one = image_digests(pixels)[2:]
    assert find_held_out(images, [zero, one]).tolist() == [True, False, False, True]


# ------------------------------------------------------------------------------------------------------- fingerprints


def image_set(n: int = 5000) -> data.ImageSet:
    pixels = np.random.default_rng(0).integers(0, 256, (n, 8, 8, 3), dtype=np.uint8)
    return data.ImageSet("x", "train", pixels, np.arange(n) % 3, ("a", "b", "c"), (0.5,) * 3, (0.5,) * 3, 1)


@pytest.mark.parametrize("change", ["pixel", "label", "no labels"])
def test_any_change_changes_the_fingerprint(change: str) -> None:
    from dataclasses import replace

    images = image_set()
    recorded = fingerprint(images)
    assert matches(image_set(), recorded)
    if change == "pixel":
        images.images[1, 2, 3, 0] ^= 1
    elif change == "label":
        images.labels[4999] = (images.labels[4999] + 1) % 3
    else:
        images = replace(images, labels=None)
    assert not matches(images, recorded)


def test_the_earlier_form_of_the_fingerprint_is_understood() -> None:
    images = image_set()
    recorded = _sampled(images.images)
    assert len(recorded) == 16
    assert matches(images, recorded)
    images.images[0] ^= 1
    assert not matches(images, recorded)


def test_a_resume_refuses_changed_labels(photos: Path, tmp_path: Path) -> None:
    run = relatum.pretrain(photos, out=tmp_path / "run", **FLAGS)
    (run.path / "backbone.safetensors").unlink()
    files = sorted((photos / "down").iterdir())
    for file in files[:1]:  # the last image of `across` becomes the first of `down`: the order stays
        last = max((photos / "across").iterdir())
        last.rename(photos / "down" / f"!{last.name}")
        assert file.exists()
    with pytest.raises(InputError, match="pixels, labels or file names"):
        relatum.pretrain(photos, out=run, resume=True, **FLAGS)
