"""`make audit` never says that there are no vulnerabilities where nothing was looked up."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from scripts import load_script


@pytest.fixture
def audit(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = load_script(Path(__file__).parents[2] / "tools" / "audit.py")
    monkeypatch.setattr(module.importlib.metadata, "distributions", lambda: [Package(name) for name in "abcd"])
    return module


class Package:
    def __init__(self, name: str) -> None:
        self.metadata = {"Name": name}


def line(name: str) -> str:
    return f"{name}  Dependency not found on PyPI and could not be audited: {name} (1.0)\n"


def test_nothing_was_looked_up(audit: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    text = "".join(map(line, "abc")) + "No known vulnerabilities found\n"
    assert audit.report(text, 0) is None
    assert capsys.readouterr().out == "vulnerabilities: not checked, the service knows none of the 4 packages\n"


def test_what_was_not_looked_up_is_named(audit: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.report(line("a") + "No known vulnerabilities found\n", 0) == 0
    told = capsys.readouterr().out
    assert "1 of 4 packages could not be checked: a" in told
    assert "none known in the other 3 packages" in told
    assert audit.report("b 1.0 CVE-1\n", 1) == 1
    assert "CVE-1" in capsys.readouterr().out
