from __future__ import annotations

import json
from pathlib import Path

import pytest

from relatum import cli, demo
from relatum.errors import InputError, Interrupted


def test_the_demo_in_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    small = {"limit_train": 64, "epochs": 1, "batch_size": 16, "threads": 1}
    steps = tuple((method, description, {**flags, **small}) for method, description, flags in demo._STEPS)
    monkeypatch.setattr(demo, "_STEPS", steps)
    monkeypatch.setattr(demo, "_MAP", {"points": 100, "iterations": 300})
    with pytest.raises(SystemExit) as caught:
        cli.main(["demo", "--out", str(tmp_path / "demo")])
    assert not caught.value.code
    text = capsys.readouterr().out
    for method, description, _ in steps:
        result = json.loads((tmp_path / "demo" / method / "evaluations" / "linear-shapes-test.json").read_text())
        assert description in text
        assert f"{result['accuracy']:.2f}" in text
    assert (tmp_path / "demo" / "report.html").exists()
    assert "report.html" in text
    with pytest.raises(InputError, match="already contains a demo"):
        demo.run_demo(tmp_path / "demo")


def test_an_interrupted_demo_names_a_flag_that_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise Interrupted(2, "stopped at step 3 of 9; --resume continues.")

    monkeypatch.setattr(demo.api, "pretrain", stopped)
    with pytest.raises(Interrupted) as caught:
        demo.run_demo(tmp_path / "demo")
    assert "--resume" not in caught.value.args[0]
    assert "relatum demo --overwrite" in caught.value.args[0]
