"""The table of methods after the paper: views and seconds beside accuracy, and the plot over compute."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from relatum.paper import figures, render
from relatum.paper.cells import Plan, Request
from relatum.paper.grid import Evaluation
from relatum.paper.measured import Results
from relatum.paper.plan import plan
from relatum.runs import ledger, speeds
from relatum.runs.folder import RunFolder
from relatum.system.files import write_json

Make = Callable[[Plan, Callable[[Evaluation], float]], Results]


@pytest.fixture
def asked() -> Plan:
    return plan(["modern"], Request(methods=("byol", "dino", "random")))


def test_views_and_seconds_stand_beside_accuracy(asked: Plan, results_of: Make, tmp_path: Path) -> None:
    results = results_of(asked, lambda e: 40.0 + e.run.views)
    for run in asked.runs:
        RunFolder(results.run_dir(run)).update_record(seconds=1234.5 * run.all_views)
    document = render.document(asked.tables[0], results)
    cells = {(c["row_key"], c["column_key"]): c for c in document["sheets"][0]["cells"]}
    assert document["complete"]
    assert cells["byol-4", "views"]["ours"] == 4
    assert cells["dino-multi-crop", "views"]["text"] == "8"  # two views and six small ones
    assert cells["byol-4", "seconds"]["text"] == "4,938"
    assert cells["byol-4", "linear"]["ours"] == 44
    assert not any(c["best"] for (_, column), c in cells.items() if column in ("views", "seconds"))
    assert cells["byol-4", "linear"]["best"]
    markdown = render.to_markdown(document)
    assert "not in the paper" in markdown
    assert "| 4,938 |" in markdown
    svg = figures.draw(asked.tables[0], results, tmp_path)[1].read_text("utf-8")
    assert ">byol<" in svg
    assert ">not drawn: random weights 41.0<" in svg
    assert "of the paper)" not in svg


def test_without_a_run_the_cost_is_missing(asked: Plan, tmp_path: Path) -> None:
    document = render.document(asked.tables[0], Results(tmp_path))
    assert {c["status"] for c in document["sheets"][0]["cells"]} == {"missing"}
    assert not document["complete"]


def test_small_views_are_part_of_the_run(asked: Plan) -> None:
    (run,) = [r for r in asked.runs if r.set]
    assert run.method == "dino"
    assert run.recipe().views.small_number == 6
    assert run.all_views == 8
    assert run.arguments()[-2:] == ["--set", "views.small_number=6"]
    assert run.epochs == 100
    assert {r.seed for r in asked.runs} == {1}


def test_measured_speeds_replace_the_seconds_of_ledger_entries(asked: Plan, results_of: Make, tmp_path: Path) -> None:
    results, ledgers = results_of(asked, lambda _: 40.0), tmp_path / "ledger"
    for run in asked.runs:
        recipe = run.recipe().tables()
        recipe["data"]["images"] = 50_000
        ledger.write(ledgers, {"id": run.id, "recipe": recipe, "evaluations": [], "seconds": 9999.0})
    (byol_2,) = [run for run in asked.runs if run.method == "byol" and run.views == 2]
    (byol_4,) = [run for run in asked.runs if run.method == "byol" and run.views == 4]
    row = {"condition": speeds.condition(byol_2.recipe().tables()), "seconds_per_step": 0.5}
    write_json(ledgers / "speeds.json", {"recipes": [row]})
    elsewhere = Results(tmp_path / "nowhere", [ledgers])
    assert elsewhere.seconds(byol_2) == 0.5 * 391 * 100
    assert elsewhere.seconds(byol_4) == 9999.0
    RunFolder(results.run_dir(byol_2)).update_record(seconds=7.0)
    assert Results(results.out, [ledgers]).seconds(byol_2) == 7.0  # a run here counts as it was


def test_weights_from_the_ledger_cost_what_the_ledger_says(asked: Plan, results_of: Make, tmp_path: Path) -> None:
    """A folder that was restored has weights and no record of its training: its seconds were missing from the table."""
    results, ledgers = results_of(asked, lambda _: 40.0), tmp_path / "ledger"
    for run in asked.runs:
        recipe = run.recipe().tables()
        ledger.write(ledgers, {"id": run.id, "recipe": recipe, "evaluations": [], "seconds": 9999.0})
    restored = Results(results.out, [ledgers])
    assert {restored.seconds(run) for run in asked.runs} == {9999.0}
    assert render.document(asked.tables[0], restored)["complete"]
