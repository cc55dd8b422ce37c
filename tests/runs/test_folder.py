"""The run folder: one process at a time, its recipe and record, and the names that scripts depend on."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from relatum import config
from relatum.config.methods import METHODS
from relatum.errors import InputError
from relatum.runs.folder import RunFolder, read_recipe


def test_two_processes_cannot_train_in_one_folder(tmp_path: Path) -> None:
    named = r"another process is training in .* \(process \d+ on "
    with RunFolder(tmp_path).lock(), pytest.raises(InputError, match=named), RunFolder(tmp_path).lock():
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
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "thumbs").touch()
    (tmp_path / "artifacts").symlink_to("elsewhere")
    assert folder.exists()
    assert folder.read_record() == {"status": "running"}
    folder.clear()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["elsewhere", "notes.txt"]
    assert (tmp_path / "elsewhere" / "thumbs").exists()
    assert not folder.exists()
    assert folder.read_record() == {}


def test_clearing_keeps_photographs_in_folders_named_like_ours(tmp_path: Path) -> None:
    """`--out` was a folder of photographs, some of them in `index/`: a second run deleted these."""
    folder = fill(tmp_path)
    photographs = [
        tmp_path / name for name in ("index/a.jpg", "features/b.png", "artifacts/tsne.png", "artifacts/x/c.png")
    ]
    for path in (*photographs, tmp_path / "artifacts" / "views.npz", tmp_path / "artifacts" / "views.png"):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    folder.clear()
    assert all(path.exists() for path in photographs)
    assert not list(tmp_path.rglob("views.*"))
    assert not folder.exists()
    assert not folder.has_checkpoints()


def test_temporary_files_behind_a_link_are_not_ours(tmp_path: Path) -> None:
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads" / ".film.part").write_text("half of it")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "artifacts").symlink_to(tmp_path / "downloads")
    with RunFolder(tmp_path / "run").lock():
        pass
    assert (tmp_path / "downloads" / ".film.part").exists()


RECIPE = config.draft(flags={"data.name": "cifar10"}).recipe()


def fill(run: Path) -> RunFolder:
    folder = RunFolder(run)
    folder.write_recipe(RECIPE)
    folder.update_record(status="running", version="0.1.0")
    for path in (folder.last, folder.previous, folder.milestone(25), folder.backbone, folder.metrics):
        path.parent.mkdir(exist_ok=True)
        path.write_text("content")
    for name in ("features", "artifacts", "evaluations"):
        (run / name).mkdir()
        (run / name / "file").touch()
    return folder


def test_clearing_may_be_killed_at_any_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left is the old run or none: never checkpoints without the recipe that they belong to."""

    class Killed(BaseException):
        pass

    calls = 0
    for moment in range(100):
        folder = fill(tmp_path / str(moment))
        left = [moment]

        def count(original: Any, *arguments: Any, left: list[int] = left, **keywords: Any) -> Any:
            if not left[0]:
                raise Killed
            left[0] -= 1
            return original(*arguments, **keywords)

        with monkeypatch.context() as patch:
            for owner, name in ((Path, "unlink"), (Path, "replace"), (os, "unlink"), (os, "rmdir")):
                patch.setattr(owner, name, partial(count, getattr(owner, name)) if owner is os else wrap(count, name))
            try:
                folder.clear()
            except Killed:
                calls += 1
            else:
                break
        if folder.exists():
            assert folder.read_recipe() == RECIPE
            assert folder.is_run()
            # It is resumed from all of its checkpoints, with its metrics, or trained again.
            assert not folder.has_checkpoints() or (folder.last.exists() and folder.metrics.exists())
        else:
            assert not folder.has_checkpoints()
        assert not folder.finished() or (folder.has_checkpoints() and folder.metrics.exists())
        with folder.lock():  # removes what is left of the folders
            assert not list(folder.path.glob(".removed-*"))
    assert calls > 8


def wrap(count: Any, name: str) -> Any:
    original = getattr(Path, name)
    return lambda self, *arguments, **keywords: count(original, self, *arguments, **keywords)


def test_only_folders_that_relatum_wrote_are_runs(tmp_path: Path) -> None:
    assert not RunFolder(tmp_path / "nothing").is_run()
    assert fill(tmp_path / "run").is_run()
    soup = RunFolder(tmp_path / "soup")
    soup.path.mkdir()
    for text in ('title = "Minestrone"\n[vegetables]\ncarrots = 3\n', "", "not toml", "\x00"):
        soup.recipe.write_text(text)
        assert not soup.is_run()
    soup.record.write_text('{"status": "finished", "version": "0.1.0"}')  # the recipe of this run is damaged
    assert soup.is_run()


def test_a_changed_recipe_is_noticed(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write_recipe(RECIPE)
    assert not folder.recipe_changed()
    text = folder.recipe.read_text()
    folder.recipe.write_text(text.replace("seed = 1", "seed = 2"))
    assert folder.recipe_changed()
    folder.recipe.write_text(RECIPE.to_toml())  # written before there were checksums
    assert not folder.recipe_changed()
    folder.recipe.write_bytes(b"\xff" + text.encode())
    assert folder.recipe_changed()
    folder.recipe.write_text(text[: text.index("[run]")])  # cut off: valid TOML, without a checksum
    folder.update_record(status="running")
    assert folder.recipe_changed()


@pytest.mark.parametrize("text", ["", "seed = 1\n", '[data]\nname = ""\n'])
def test_a_recipe_without_data_is_damaged(tmp_path: Path, text: str) -> None:
    (tmp_path / "recipe.toml").write_text(text)
    with pytest.raises(InputError, match=r"recipe\.toml is empty or damaged"):
        read_recipe(tmp_path)


def test_a_refused_run_leaves_no_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="bad input"), RunFolder(tmp_path / "run").lock():
        raise ValueError("bad input")
    assert not (tmp_path / "run").exists()


def test_a_damaged_record_is_empty(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert not folder.record_damaged()
    folder.update_record(status="running", seconds=12.5, skipped=[{"path": "a\udce9", "reason": "é"}])
    assert not folder.record_damaged()
    folder.record.write_text(folder.record.read_text().replace("12.5", "13.5"))
    assert folder.record_damaged()
    folder.record.write_text('{"status": "running"}')  # of an older version
    assert not folder.record_damaged()
    for content in (b"", b"[1, 2]", b'{"status": ', b"\xff"):
        folder.record.write_bytes(content)
        assert folder.read_record() == {}
        assert folder.record_damaged()


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
