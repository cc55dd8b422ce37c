"""Reading run folders: whatever is there is read, and what is missing or unreadable becomes a note."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from runmaker import RunMaker, blobs

from relatum import config
from relatum.errors import InputError
from relatum.runs.folder import RunFolder
from relatum.runs.metrics import MetricsWriter
from relatum.runs.reading import is_number, read_run, read_runs


def test_a_complete_run(tmp_path: Path) -> None:
    run = read_run(RunMaker(tmp_path / "run").full(blobs(40), np.arange(40) % 10))
    assert (run.method, run.backbone, run.dataset, run.notes) == ("relational", "conv4", "cifar10", [])
    assert run.setting("views.number") == 32
    assert run.metrics["step"][-1] == 156400
    assert [path.name for path in run.folder.artifacts("tsne")] == ["tsne-cifar10-test.npz"]
    arrays = run.load_artifact(run.folder.artifacts("views")[0], "views", "originals")
    assert arrays is not None
    assert arrays["views"].shape == (6, 32, 32, 32, 3)


def test_settings_come_from_evaluations_without_a_recipe(tmp_path: Path) -> None:
    run = read_run(RunMaker(tmp_path / "run", dataset="my photos/").evaluation("knn").folder)
    assert run.setting("views.number") == 32
    assert run.setting("train.epochs") == 200
    assert (run.data_name, run.dataset) == ("my photos", "my-photos")
    assert run.setting("train.lr", 0.5) == 0.5
    assert len(run.notes) == 2  # no run.json, no recipe.toml


def test_unreadable_parts_become_notes(tmp_path: Path) -> None:
    maker = RunMaker(tmp_path / "run").recipe().info().metrics(steps=5, logged=5, extra="[1]\nno\n")
    (maker.folder / "run.json").write_text("{", "utf-8")
    (maker.folder / "artifacts").mkdir()
    np.savez(maker.folder / "artifacts" / "pairs.npz", left=np.zeros(2))
    run = read_run(maker.folder)
    assert len(run.metrics["loss"]) == 5
    assert run.load_artifact(maker.folder / "artifacts" / "pairs.npz", "left", "right") is None
    assert [note.split()[0] for note in run.notes] == ["run.json", "2", "artifacts/pairs.npz"]


def test_names_are_unique_and_a_folder_is_read_once(tmp_path: Path) -> None:
    folders = [RunMaker(tmp_path / parent / "run").recipe().folder for parent in ("a", "b")]
    assert [run.name for run in read_runs([*folders, folders[0]])] == ["a/run", "b/run"]


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no run at"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(InputError, match="is not a run folder"):
        read_run(tmp_path)


def test_only_finite_numbers_are_numbers() -> None:
    assert [is_number(value) for value in (1, 0.5, True, float("nan"), float("inf"), "1", None)] == [True, True] + [
        False
    ] * 5


def test_changed_files_are_noted(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write_recipe(config.draft(flags={"data.name": "cifar10"}).recipe())
    writer = MetricsWriter(folder.metrics, 0)
    for step in (1, 2):
        writer.write({"step": step, "loss": 0.25 * step, "views_per_second": 100.0})
    writer.close()
    folder.update_record(status="finished", seconds=10.0, metrics_digest=writer.digest)
    assert read_run(tmp_path).notes == []
    for path, old, new in (
        (folder.recipe, "seed = 1", "seed = 2"),
        (folder.metrics, "0.5", "0.4"),
        (folder.record, "10.0", "11.0"),
    ):
        text = path.read_text()
        path.write_text(text.replace(old, new))
        (note,) = read_run(tmp_path).notes
        assert note.startswith(f"{path.name} was changed")
        path.write_text(text)
