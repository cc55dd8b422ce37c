from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path

import pytest

import relatum.data
from relatum.data import cache_dir, data_root, paths
from relatum.errors import InputError


def test_data_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert data_root() == tmp_path / "cache" / "data"
    monkeypatch.setenv("RELATUM_DATA", "~/sets")
    assert data_root() == Path.home() / "sets"
    assert data_root(tmp_path) == tmp_path
    assert data_root(str(tmp_path)) == tmp_path


@pytest.mark.parametrize(
    ("platform", "tail"),
    [("linux", ".cache/relatum"), ("darwin", "Library/Caches/relatum"), ("win32", "AppData/Local/relatum")],
)
def test_the_users_cache(monkeypatch: pytest.MonkeyPatch, platform: str, tail: str) -> None:
    for name in ("RELATUM_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(paths.sys, "platform", platform)
    assert paths.preferred_cache() == Path.home() / tail
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert paths.preferred_cache() == Path("/xdg/relatum")


def test_the_cache_is_made(own_cache: Path) -> None:
    assert cache_dir() == own_cache
    assert own_cache.is_dir()


@pytest.fixture
def blocked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RELATUM_CACHE", str(tmp_path / "file" / "below"))  # no folder can be made below a file
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    return temporary


def test_a_temporary_cache_with_one_warning(blocked: Path) -> None:
    with pytest.warns(UserWarning, match="cannot be written.*RELATUM_CACHE"):
        first = cache_dir()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache_dir() == first
    assert first == blocked / f"relatum-{os.getuid()}"
    assert first.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("trap", ["link", "open", "file"])
def test_a_temporary_cache_that_others_prepared_is_not_used(blocked: Path, trap: str, tmp_path: Path) -> None:
    place = blocked / f"relatum-{os.getuid()}"
    if trap == "link":
        (tmp_path / "theirs").mkdir()
        place.symlink_to(tmp_path / "theirs")
    elif trap == "open":
        place.mkdir()
        place.chmod(0o777)
    else:
        place.write_text("")
    with pytest.warns(UserWarning, match="cannot be written"):
        assert cache_dir() != place


def test_a_user_without_a_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unknown(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    with pytest.raises(InputError, match="no home folder is known for '~nobody-of-this-name'"):
        relatum.data.load("~nobody-of-this-name/photos")
    for name in ("RELATUM_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "expanduser", unknown)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    assert paths.preferred_cache().parent == tmp_path
