"""The examples run and do what they claim."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np

EXAMPLES = Path(__file__).parents[1] / "examples"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
