"""`explore`: what it says about a run that is already in the folder."""

from __future__ import annotations

from pathlib import Path

import pytest

import relatum


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
