from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from relatum.errors import InputError
from relatum.paper import published
from relatum.paper.reproduce import reproduce

SMALL: dict[str, Any] = {"datasets": ["cifar10"], "backbones": ["conv4"], "seeds": [1], "ledger": ()}
KEYS = {"table", "pretrain", "evaluate", "cells", "seconds_estimate"}


def dry(capsys: pytest.CaptureFixture[str], tmp_path: Path, *names: str, **flags: Any) -> dict[str, Any]:
    flags = {"out": tmp_path / "out", "ledger": (), **flags}
    assert reproduce(names, dry_run=True, as_json=True, **flags) == 0
    return dict(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize("name", published.NAMES)
def test_dry_run_of_every_table(name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    document = dry(capsys, tmp_path, name)
    assert document.keys() >= KEYS
    assert document["table"] == name
    assert document["cells"]
    for cell in document["cells"]:
        assert cell.keys() >= {"row", "column", "paper", "paper_std", "done"}
        assert cell["done"] is (name == "claims" and cell["row_key"] in ("pairs", "balance", "parameters"))
    for kind in ("pretrain", "evaluate"):
        ids = [x["id"] for x in document[kind]]
        assert len(ids) == len(set(ids))
        assert all(x["command"].startswith("relatum ") for x in document[kind])
    assert document["seconds_estimate"] > 0 or name == "claims"
    assert not (tmp_path / "out").exists()


def test_dry_run_of_backbones_linear(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    document = dry(capsys, tmp_path, "backbones-linear")
    assert (len(document["cells"]), len(document["pretrain"]), len(document["evaluate"])) == (40, 108, 96)
    cell = next(c for c in document["cells"] if c["paper"] == 77.51)
    assert (cell["row"], cell["column"], cell["paper_std"]) == (
        "Relational Reasoning (ours)",
        "ResNet-56, CIFAR-10",
        0.0,
    )


def test_dry_run_of_several_tables_shares_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    document = dry(capsys, tmp_path, "grain", "backbones-grain")
    assert [t["table"] for t in document["tables"]] == ["grain", "backbones-grain"]
    apart = sum(len(t["pretrain"]) for t in document["tables"])
    assert len(document["pretrain"]) < apart
    assert document["seconds_estimate"] < sum(t["seconds_estimate"] for t in document["tables"])


def test_dry_run_for_people(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert reproduce(["slimagenet"], dry_run=True, out=tmp_path, ledger=()) == 0
    text = capsys.readouterr().out
    assert "pretrain: 15, 0 done" in text
    assert "time left: about" in text
    assert text.count("    todo  ") == 15  # one line a run
    assert text.count("(evaluations: ") == 12  # supervised runs evaluate themselves
    assert "--out" not in text
    assert text.endswith("as_json=True shows the command of each run and evaluation.\n")


def test_run_render_and_what_is_done(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, trace: Path, stub: tuple[str, ...]
) -> None:
    out = tmp_path / "out"
    flags = {**SMALL, "out": out, "command": stub, "views": 4, "epochs": 1, "limit_train": 2000}
    assert reproduce(["linear-evaluation", "fig-augmentations"], as_json=True, **flags) == 0
    document = json.loads(capsys.readouterr().out)
    assert [t["table"] for t in document["tables"]] == ["linear-evaluation", "fig-augmentations"]
    assert {p.name for p in (out / "tables").iterdir()} >= {f"linear-evaluation.{e}" for e in ("md", "csv", "json")}
    figures = {p.name for p in (out / "figures").iterdir() if not p.name.startswith(".")}
    assert figures == {"fig-augmentations.png", "fig-augmentations.svg"}
    assert "K = 4 (paper: 32); 1 of 200 epochs" in (out / "tables" / "linear-evaluation.md").read_text("utf-8")
    before = trace.read_text()
    assert reproduce(["linear-evaluation"], render_only=True, **flags) == 0
    assert "62.0" not in capsys.readouterr().err
    assert trace.read_text() == before
    planned = dry(capsys, tmp_path, "linear-evaluation", **{k: v for k, v in flags.items() if k != "command"})
    assert all(c["done"] for c in planned["cells"])
    assert all(r["done"] for r in planned["pretrain"] + planned["evaluate"])
    assert planned["seconds_estimate"] == 0
    full = dry(capsys, tmp_path, "linear-evaluation", **{**SMALL, "out": out})
    assert [c["done"] for c in full["cells"]] == [c["row_key"] == "random" for c in full["cells"]]


def test_it_says_how_much_there_is_before_it_starts_and_nothing_when_all_is_done(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    trace: Path,
    stub: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flags = {**SMALL, "out": tmp_path / "out", "command": stub}
    assert reproduce(["linear-evaluation"], **{**flags, "methods": ["relational"]}) == 0
    capsys.readouterr()
    flags |= {"methods": ["relational", "supervised", "simclr"]}
    assert reproduce(["linear-evaluation"], **flags) == 0
    first = capsys.readouterr().err.splitlines()[0]
    assert re.fullmatch(r"3 runs, 1 done; 2 evaluations, 1 done; about \S+ \w+ left .*", first)
    monkeypatch.setattr("relatum.paper.estimate.total", lambda *_: pytest.fail("nothing is left to estimate"))
    assert reproduce(["linear-evaluation"], **flags) == 0
    said = capsys.readouterr().err.splitlines()
    assert said == [f"tables: {tmp_path / 'out' / 'tables' / 'linear-evaluation'}.md (and .csv, .json)"]


def test_ledger_alone_renders_and_counts_as_done(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, trace: Path, stub: tuple[str, ...]
) -> None:
    out = tmp_path / "out"
    options: dict[str, Any] = {"out": out, "ledger": (), "command": stub}
    assert reproduce(["augmentations"], methods=["relational"], seeds=[1], **options) == 0
    (out / "ledger").rename(tmp_path / "results")
    flags: dict[str, Any] = {
        "methods": ["relational"],
        "seeds": [1],
        "out": tmp_path / "new",
        "ledger": [tmp_path / "results"],
    }
    capsys.readouterr()
    assert all(c["done"] for c in dry(capsys, tmp_path, "augmentations", **flags)["cells"])
    assert reproduce(["augmentations", "claims"], render_only=True, **flags) == 0
    assert "Relational Reasoning" in capsys.readouterr().out
    text = (tmp_path / "new" / "tables" / "augmentations.md").read_text("utf-8")
    links = re.findall(r"\]\((\S+?\.json)\)", text)
    assert len(links) == 5
    assert all((tmp_path / "new" / "tables" / link).exists() for link in links)


def test_a_failure_is_told_by_the_exit_code_and_in_the_table(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    trace: Path,
    stub: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STUB_FAIL", "simclr")
    flags = {**SMALL, "out": tmp_path / "out", "command": stub}
    assert reproduce(["linear-evaluation"], **flags) == 1
    captured = capsys.readouterr()
    assert "| SimCLR | *failed*<br>paper 60.43 ± 0.26 |" in captured.out
    assert "failed: simclr-cifar10-conv4" in captured.err
    monkeypatch.delenv("STUB_FAIL")
    assert reproduce(["linear-evaluation"], **flags) == 0


def test_render_of_missing_cells_is_not_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce(["grain"], render_only=True, out=tmp_path, ledger=()) == 1
    assert "*missing*" in capsys.readouterr().out


def test_bad_usage(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="name a table"):
        reproduce([])
    with pytest.raises(InputError, match="one of them"):
        reproduce(["grain"], dry_run=True, render_only=True)
    with pytest.raises(InputError, match="executor"):
        reproduce(["grain"], executor="moon")
    (tmp_path / "a-file").touch()
    for out in (tmp_path / "a-file", tmp_path / "a-file" / "under"):
        with pytest.raises(InputError, match="a-file is a file"):
            reproduce(["grain"], render_only=True, out=out, ledger=())


def test_nothing_imports_torch() -> None:
    code = (
        "import sys, relatum.paper.reproduce, relatum.paper.recipes\n"
        "from relatum.paper.reproduce import reproduce\n"
        "reproduce(['claims', 'grain'], dry_run=True, ledger=())\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_options_that_select_nothing_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def ask(*names: str, **filters: object) -> None:
        reproduce(names, out=tmp_path, dry_run=True, **{"ledger": (), **filters})  # type: ignore[arg-type]

    with pytest.raises(InputError, match=r"ledger=.*nowhere' is not a folder"):
        ask("head", ledger=[tmp_path / "nowhere"])
    with pytest.raises(InputError, match="2\\*\\*63"):
        ask("head", seeds=[2**63])
    with pytest.raises(InputError, match="shapes has no super-categories"):
        ask("tsne-super", datasets=["shapes"])
    with pytest.raises(InputError) as caught:  # one filter leaves nothing: that one is named
        ask("aggregation", datasets=["shapes"], backbones=["conv4"], methods=["relational"], views=2)
    assert "datasets: cifar10, cifar100" in str(caught.value)
    assert "backbones" not in str(caught.value)
    assert "views=" not in str(caught.value)
    capsys.readouterr()
    ask("head", datasets=["cifar10", "shapes"], views=2)
    assert "no cell of head uses 'shapes'" in capsys.readouterr().err
    ask("domain-transfer", datasets=["cifar10"], views=2)
    ask("domain-transfer", datasets=["cifar10"], methods=["random"])
    assert capsys.readouterr().err == ""
    ask("claims")
    assert "reproduce other tables" in capsys.readouterr().out
