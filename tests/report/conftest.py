"""Run folders for the tests of the report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from runmaker import RunMaker


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., RunMaker]:
    """Makes an empty run folder that can be filled: `make_run("name", method=...)`."""
    return lambda name="run", **options: RunMaker(tmp_path / name, **options)
