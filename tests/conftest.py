"""Shared fixtures: caches and data in a folder of the test session's own, one thread, small runs."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

# Two test workers on two cores: a second OpenMP thread in each only makes them wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")
if hasattr(signal, "SIGHUP"):  # under nohup it is ignored, which commands respect and tests of signals do not expect
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def _own_places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes the user's data or cache."""
    places = {"RELATUM_CACHE": tmp_path_factory.mktemp("cache"), "RELATUM_DATA": tmp_path_factory.mktemp("data")}
    before = {name: os.environ.get(name) for name in places}
    os.environ.update({name: str(path) for name, path in places.items()})
    yield
    for name, value in before.items():
        if value is None:
            os.environ.pop(name)
        else:
            os.environ[name] = value


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 36 small pictures in three class folders: stripes of different directions."""
    root = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    for number, name in enumerate(("across", "down", "slanted")):
        (root / name).mkdir()
        for i in range(12):
            y, x = np.mgrid[:32, :32]
            phase = (y, x, x + y)[number] + rng.integers(8)
            picture = np.where(phase[..., None] % 8 < 4, rng.integers(0, 120, 3), rng.integers(130, 255, 3))
            noise = rng.integers(-8, 8, (32, 32, 3))
            Image.fromarray((picture + noise).clip(0, 255).astype(np.uint8)).save(root / name / f"{i:02d}.png")
    return root
