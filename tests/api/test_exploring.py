"""`explore`: what it says about a run that is already in the folder."""

from __future__ import annotations

from pathlib import Path

import pytest

import relatum
from relatum.api import exploring
from relatum.api.runs import data_name
from relatum.errors import InputError


def test_a_resumed_run_keeps_its_time_budget_and_says_so(
    pictures: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    relatum.pretrain(pictures, out=run, views=2, batch_size=18, epochs=1, compile="off", threads=1, quiet=True)
    for minutes, says_so in ((None, False), (3, True)):
        (run / "backbone.safetensors").unlink()  # as if it had been interrupted
        capfd.readouterr()
        relatum.explore(pictures, out=run, minutes=minutes)
        assert ("with the time budget it started with" in "".join(capfd.readouterr())) == says_so


def test_a_folder_with_the_name_of_a_dataset_is_explored(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`relatum explore ./shapes` trained on the generated dataset `shapes`."""
    (tmp_path / "shapes").symlink_to(pictures)
    monkeypatch.chdir(tmp_path)
    trained_on = []

    def pretrain(data: Path, **options: object) -> None:
        trained_on.append(data_name(data))
        raise InputError("enough")

    monkeypatch.setattr(exploring, "pretrain", pretrain)
    for name in ("shapes", Path("shapes"), "./shapes"):
        with pytest.raises(InputError, match="enough"):
            relatum.explore(name, quiet=True)
    assert trained_on == [str(pictures.resolve())] * 3


def test_a_folder_is_recorded_with_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a resume, or an evaluation on the same folder, finds it from anywhere. A name is a dataset."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "photos").mkdir()
    assert data_name("~/photos") == str((tmp_path / "photos").resolve())
    assert data_name("~/nothing") == "~/nothing"
    (tmp_path / "shapes").mkdir()
    monkeypatch.chdir(tmp_path)
    assert data_name("shapes") == "shapes"
    assert data_name(Path("shapes")) == str((tmp_path / "shapes").resolve())
    assert data_name(Path("cifar10")) == "cifar10"
