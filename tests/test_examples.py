"""The examples run and do what they claim."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
from scripts import load_script

EXAMPLES = Path(__file__).parents[1] / "examples"


def load(name: str) -> ModuleType:
    return load_script(EXAMPLES / f"{name}.py")


def test_the_method_in_one_file_learns() -> None:
    assert len((EXAMPLES / "one_file.py").read_text().splitlines()) < 150
    before, after = load("one_file").main()
    assert after > before
    assert after > 80


def test_custom_loop() -> None:
    losses = load("custom_loop").main(12)
    assert np.mean(losses[-4:]) < np.mean(losses[:4])


def test_custom_backbone() -> None:
    assert load("custom_backbone").main(64) > 0
