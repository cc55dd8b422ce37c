from __future__ import annotations

from pathlib import Path

import blackbox
import pytest


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("defects")


@pytest.fixture(scope="module")
def photos(places: Path) -> Path:
    return blackbox.photos(places / "photos")


@pytest.fixture(scope="module")
def whole(photos: Path, places: Path) -> Path:
    """A finished run of 12 steps."""
    done = blackbox.relatum("pretrain", photos, "--out", places / "whole", *blackbox.SHORT)
    assert done.code == 0, done.said
    return places / "whole"


@pytest.fixture(scope="module")
def killed(photos: Path, places: Path) -> Path:
    """The same run, killed after some of its steps."""
    return blackbox.killed_run(photos, places / "killed")
