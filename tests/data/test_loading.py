from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import relatum.data
from relatum.data.sets import shapes
from relatum.errors import InputError


@pytest.mark.parametrize(
    ("wrong", "near"), [("cifar1", "cifar10"), ("shape", "shapes"), ("CIFAR100", "cifar100"), ("stl-10", "stl10")]
)
def test_a_misspelt_dataset(wrong: str, near: str) -> None:
    with pytest.raises(InputError, match=f"did you mean '{near}'"):
        relatum.data.load(wrong)
    with pytest.raises(InputError, match=f"did you mean '{near}'"):
        relatum.data.info(wrong)


def test_a_misspelt_folder(tmp_path: Path, picture) -> None:
    picture(tmp_path / "photos" / "a.png")
    with pytest.raises(InputError, match=r"did you mean '.*photos'"):
        relatum.data.load(tmp_path / "fotos")
    with pytest.raises(InputError, match=r"there is no folder .*datasets: cifar10"):
        relatum.data.load("no/such/place/at/all")
    with pytest.raises(InputError, match="there is no folder 'qqqqqq'"):
        relatum.data.load("qqqqqq")
    with pytest.raises(InputError, match="is a file, not a folder"):
        relatum.data.load(tmp_path / "photos" / "a.png")
    for bad in ("a\0b", "x" * 5000):
        with pytest.raises(InputError):
            relatum.data.load(bad)


def test_the_empty_name_is_not_the_current_folder(tmp_path: Path, picture, monkeypatch: pytest.MonkeyPatch) -> None:
    """As from `relatum embed RUN "$FOLDER"` with a variable that is not set."""
    picture(tmp_path / "a.png")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="unknown dataset or folder ''"):
        relatum.data.load("")
    with pytest.raises(InputError, match="no data"):
        relatum.pretrain("", quiet=True)
    with pytest.raises(InputError, match="unknown dataset or folder ''"):
        relatum.explore("", quiet=True)


def test_a_name_is_a_dataset_and_a_path_is_a_folder(tmp_path: Path, picture, monkeypatch: pytest.MonkeyPatch) -> None:
    picture(tmp_path / "cifar10" / "a.png")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="relatum data get cifar10"):
        relatum.data.load("cifar10", root=tmp_path / "empty")
    assert len(relatum.data.load("./cifar10")) == 1
    assert len(relatum.data.load(Path("cifar10"))) == 1


def test_home_is_expanded(tmp_path: Path, picture, monkeypatch: pytest.MonkeyPatch) -> None:
    picture(tmp_path / "photos" / "a.png")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert len(relatum.data.load("~/photos")) == 1


@pytest.mark.parametrize("value", [(1, 2), (0.1, float("nan"), 0.2), "abcd"])
def test_bad_statistics(tmp_path: Path, picture, value) -> None:
    picture(tmp_path / "p" / "a.png")
    with pytest.raises(InputError, match=r"mean = .* must be three numbers"):
        relatum.data.load(tmp_path / "p", mean=value)
    with pytest.raises(InputError, match=r"std = .* must be three numbers above 0"):
        relatum.data.load(tmp_path / "p", std=(1, 0, 1))


def test_a_dataset_at_another_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "SHAPES", replace(shapes.SHAPES, splits={"train": 20, "test": 10}))
    small, full_size = relatum.data.load("shapes", side=16), relatum.data.load("shapes")
    assert small.images.shape == (20, 16, 16, 3)
    assert small.pad == 2
    blocks = full_size.images.reshape(20, 16, 2, 16, 2, 3).mean((2, 4))
    assert np.abs(small.images - blocks).mean() < 6  # a reduction, not something else
    assert relatum.data.load("shapes", side=32).images.shape == (20, 32, 32, 3)


def test_info_of_a_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "SHAPES", replace(shapes.SHAPES, splits={"train": 20, "test": 10}))
    facts = relatum.data.info("shapes")
    assert json.loads(json.dumps(facts)) == facts
    assert facts["splits"]["train"] == {"images": 20, "labelled": True, "skipped": []}
    assert (facts["images"], facts["side"], facts["pad"], facts["source"]) == (30, 32, 4, "dataset")
    assert len(facts["classes"]) == 10


def test_info_of_an_unlabelled_folder(tmp_path: Path, picture) -> None:
    picture(tmp_path / "p" / "a.png")
    (tmp_path / "p" / "b.png").write_bytes(b"")
    facts = relatum.data.info(tmp_path / "p")
    assert (facts["name"], facts["labelled"], facts["classes"], facts["skipped"]) == ("p", False, [], 1)
    assert facts["splits"]["train"]["skipped"] == [{"path": "b.png", "reason": "the file is empty"}]


def test_info_of_missing_data(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="relatum data get stl10"):
        relatum.data.info("stl10", root=tmp_path)


def test_no_torch() -> None:
    package = Path(relatum.data.__file__).parent
    modules = [".".join(("relatum.data", *p.relative_to(package).with_suffix("").parts)) for p in package.rglob("*.py")]
    code = f"import sys, {', '.join(modules)}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_info_of_a_folder_named_by_a_url(tmp_path: Path, picture) -> None:
    """Only shards were expected at a URL: a folder of images was an unexpected AssertionError."""
    picture(tmp_path / "photos" / "a.png")
    facts = relatum.data.info(f"file://{tmp_path / 'photos'}")
    assert (facts["images"], facts["splits"].keys()) == (1, {"train"})


def test_a_dataset_that_cannot_be_streamed_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relatum.data.readers.shapes.read", lambda *_: pytest.fail("it is read first"))
    with pytest.raises(InputError, match="shapes cannot be streamed"):
        relatum.data.load("shapes", storage="stream")
