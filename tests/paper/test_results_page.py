"""The committed ledger: its page is what the entries say, and its commands are ours."""

from __future__ import annotations

import shlex
from pathlib import Path
from types import ModuleType

import pytest
from scripts import load_script

from relatum.runs import ledger

HERE = Path(__file__).parents[2] / "results"
ENTRIES = ledger.read(HERE)


@pytest.fixture(scope="module")
def build() -> ModuleType:
    return load_script(HERE / "build.py")


def test_the_page_is_what_the_entries_say(build: ModuleType) -> None:
    assert (HERE / "README.md").read_text("utf-8") == build.page(), "run `make results`"


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.path.stem)
def test_an_entry_can_be_repeated(entry: ledger.Entry) -> None:
    document = entry.document
    first = shlex.split(document["commands"][0])
    assert first[:2] == ["relatum", "pretrain"]
    assert first[first.index("--out") + 1] == f"runs/{entry.path.stem}"
    assert document["commit"]
    assert document["evaluations"]
    probes = [r for r in document["evaluations"] if r["protocol"] != "classifier"]  # which training writes itself
    assert all(r["pretrain"]["status"] == "finished" for r in probes)
    if document["method"] != "random":
        assert document["curve"][-1]["epoch"] == document["recipe"]["train"]["epochs"]
        assert entry.backbone is not None or document["recipe"]["backbone"]["name"] != "conv4"


def test_no_folder_of_a_machine_is_in_the_ledger() -> None:
    for path in HERE.glob("*.json"):
        content = path.read_text("utf-8")
        assert "/work/" not in content
        assert "/home/" not in content
        assert "/tmp/" not in content
