from __future__ import annotations

import json
from pathlib import Path

import pytest

from relatum.errors import InputError
from relatum.runs.folder import MetricsWriter, RunFolder
from relatum.system.files import write_atomically, write_json


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.json"
    write_json(path, {"a": 1})

    def fail(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, fail)
    assert json.loads(path.read_text()) == {"a": 1}
    assert [p.name for p in path.parent.iterdir()] == ["file.json"]
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"a": float("nan")})


def test_metrics_are_cut_back_to_the_step(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    writer = MetricsWriter(path, 0)
    for step in (1, 5, 10, 15):
        writer.write({"step": step, "loss": 1 / step})
    writer.sync()
    writer.close()
    with path.open("a") as file:
        file.write('{"step": 20, "lo')  # killed in mid-line
    writer = MetricsWriter(path, 10)
    writer.write({"step": 15, "loss": 0.5})
    writer.close()
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 5, 10, 15]


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
    folder.note(status="running")
    (tmp_path / "notes.txt").write_text("mine")
    assert folder.exists()
    assert folder.read_record() == {"status": "running"}
    folder.clear()
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]
    assert not folder.exists()
    assert folder.read_record() == {}


def test_names_that_are_no_text_survive(tmp_path: Path) -> None:
    name = b"caf\xe9.jpg".decode("utf-8", "surrogateescape")
    write_json(tmp_path / "run.json", {"path": name, "words": "naïve"})
    assert json.loads((tmp_path / "run.json").read_text("utf-8")) == {"path": name, "words": "naïve"}
