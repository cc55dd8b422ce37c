"""The view of all runs, from real run folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relatum.paper import progress
from relatum.system.files import write_json


def run(folder: Path, step: int, status: str = "running") -> Path:
    folder.mkdir()
    (folder / "recipe.toml").touch()
    write_json(folder / "run.json", {"status": status, "total_steps": 200})
    rows = [{"step": n, "loss": 1 / n, "views_per_second": 1234.5} for n in range(1, step + 1)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"step": 999, "lo')
    return folder


def test_running_runs_are_shown_with_their_last_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [run(tmp_path / "a", 50), run(tmp_path / "b", 1), run(tmp_path / "c", 9, "finished"), tmp_path / "none"]
    rows = progress.running(folders)
    assert [row[:4] for row in rows] == [
        ("a", "step 50/200 (25 %)", "loss 0.020", "1,234 views/s"),
        ("b", "step 1/200 (0 %)", "loss 1.000", "1,234 views/s"),
    ]
    said: list[str] = []
    with progress.board(folders, said.append) as watch:
        watch()
        assert said == []
        monkeypatch.setattr(progress, "_LINE_SECONDS", 0.0)
        watch()
    assert len(said) == 2
    assert said[0].startswith("a  step 50/200")
