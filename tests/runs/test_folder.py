"""The run folder: one process at a time, its recipe and record, and the names that scripts depend on."""

from __future__ import annotations

from pathlib import Path

import pytest

from relatum import config
from relatum.config.methods import METHODS
from relatum.errors import InputError
from relatum.runs.folder import RunFolder, read_recipe


def test_two_processes_cannot_train_in_one_folder(tmp_path: Path) -> None:
    with RunFolder(tmp_path).lock(), pytest.raises(InputError, match="another process"), RunFolder(tmp_path).lock():
        pass
    with RunFolder(tmp_path).lock():  # freed
        pass


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"), RunFolder(tmp_path / "file" / "run").lock():
        pass


def test_clearing_removes_the_run_and_nothing_else(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.recipe.write_text("")
    folder.last.parent.mkdir()
    folder.last.write_text("")
    folder.update_record(status="running")
    (tmp_path / "notes.txt").write_text("mine")
    assert folder.exists()
    assert folder.read_record() == {"status": "running"}
    folder.clear()
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]
    assert not folder.exists()
    assert folder.read_record() == {}


def test_a_refused_run_leaves_no_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="bad input"), RunFolder(tmp_path / "run").lock():
        raise ValueError("bad input")
    assert not (tmp_path / "run").exists()


def test_a_damaged_record_is_empty(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for content in (b"", b"[1, 2]", b'{"status": ', b"\xff"):
        folder.record.write_bytes(content)
        assert folder.read_record() == {}


@pytest.mark.parametrize("method", METHODS)
def test_the_recipe_of_a_run_is_read_back(method: str, tmp_path: Path) -> None:
    recipe = config.draft(flags={"data.name": "cifar100", "method": method}).recipe({"run.threads": 2})
    RunFolder(tmp_path).write_recipe(recipe)
    assert read_recipe(tmp_path) == recipe


def test_a_recipe_of_an_unregistered_method_is_read(tmp_path: Path) -> None:
    recipe = config.draft(flags={"data.name": "cifar10"}).recipe()
    (tmp_path / "recipe.toml").write_text(recipe.to_toml().replace('"relational"', '"custom"', 1))
    assert read_recipe(tmp_path).method == "custom"


def test_a_folder_without_a_recipe_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no run at"):
        read_recipe(tmp_path)
