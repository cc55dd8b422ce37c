"""Fabric does what the recipe says, whatever the environment says."""

from __future__ import annotations

import os

import pytest

from relatum.config import draft
from relatum.training.engine import make_fabric


@pytest.mark.parametrize("settings", [{"LT_PRECISION": "bf16-mixed"}, {"LT_NUM_NODES": "2", "LT_DEVICES": "2"}])
def test_settings_of_fabric_run_do_not_replace_the_recipe(
    settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**settings, "LT_CLI_USED": "1" if "LT_PRECISION" not in settings else "0"}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    recipe = draft(flags={"data.name": "shapes", "run.device": "cpu"}).request
    fabric = make_fabric(recipe)
    assert (type(fabric._precision).__name__, fabric.world_size) == ("Precision", 1)
    assert {name: os.environ[name] for name in settings} == settings
