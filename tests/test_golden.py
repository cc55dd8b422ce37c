"""The fast path against the reference path: same seed, same parameters, the same loss over twenty steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import relatum


def losses(path: Path, **settings: Any) -> list[float]:
    run = relatum.pretrain(
        "shapes",
        out=path,
        views=4,
        batch_size=64,
        epochs=2,
        limit_train=640,  # ten steps an epoch
        seed=3,
        compile="off",
        threads=1,
        quiet=True,
        set={"log.every_steps": 1, **settings},
    )
    rows = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 20
    return [row["loss"] for row in rows]


@pytest.mark.parametrize("options", [{}, {"objective.negatives": "random", "objective.aggregation": "mean"}])
def test_twenty_steps_agree_with_the_reference(tmp_path: Path, options: dict[str, Any]) -> None:
    fast = losses(tmp_path / "fast", **{"run.kernels": "numba"}, **options)
    slow = losses(tmp_path / "slow", **{"run.kernels": "reference"}, **options)
    torch_path = losses(tmp_path / "torch", **{"run.kernels": "torch"}, **options)
    assert fast == pytest.approx(slow, abs=1e-4)
    assert torch_path == pytest.approx(slow, abs=1e-4)
    assert fast != slow  # they are not the same code


@pytest.mark.slow
def test_compiled_anew_and_from_the_cache_have_the_same_bits(pictures: Path, tmp_path: Path) -> None:
    """A process that compiles the kernels and one that loads them: numba once gave them different bits."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kernels")}
    made = []
    for name in ("compiles", "loads"):
        command = [
            *(sys.executable, "-m", "relatum", "pretrain", str(pictures), "--out", str(tmp_path / name)),
            *("--views", "3", "--batch-size", "8", "--epochs", "1", "--threads", "1", "--compile", "off"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        made.append((tmp_path / name / "backbone.safetensors").read_bytes())
    assert any((tmp_path / "kernels").rglob("*.nbc"))
    assert made[0] == made[1]
