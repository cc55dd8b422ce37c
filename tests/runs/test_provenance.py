from __future__ import annotations

import json
import platform
import re
import subprocess
from pathlib import Path

import pytest

from relatum.runs import provenance


def test_record_is_json_and_names_no_host() -> None:
    text = json.dumps(provenance.record())
    assert {"version", "commit", "machine", "threads", "versions"} == json.loads(text).keys()
    assert platform.node() not in text or not platform.node()
    assert provenance.machine()["cores"] >= 1
    assert provenance.machine()["cpu"]


def test_commit_is_that_of_this_checkout() -> None:
    here = Path(provenance.__file__).parents[2]
    done = subprocess.run(["git", "-C", str(here), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    provenance.commit.cache_clear()
    if done.returncode:
        assert provenance.commit() is None
    else:
        assert provenance.commit() == done.stdout.strip()
        assert re.fullmatch("[0-9a-f]{40}", done.stdout.strip())


def test_no_commit_of_somebody_elses_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    package = tmp_path / ".venv" / "relatum"
    package.mkdir(parents=True)
    monkeypatch.setattr(provenance, "__file__", str(package / "provenance.py"))
    provenance.commit.cache_clear()
    assert provenance.commit() is None
    provenance.commit.cache_clear()


def test_no_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    provenance.commit.cache_clear()
    assert provenance.commit() is None
    provenance.commit.cache_clear()
