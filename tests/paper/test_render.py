from __future__ import annotations

import csv
import io
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relatum.paper import render
from relatum.paper.cells import Plan, Request
from relatum.paper.grid import Evaluation, Scale
from relatum.paper.measured import Results
from relatum.paper.plan import plan

Make = Callable[[Plan, Callable[[Evaluation], float]], Results]
REQUEST = Request(("cifar10",), ("conv4",), ("relational", "simclr", "rotation", "supervised"), (1, 2, 3))


ACCURACIES = {
    "relational": [61.0, 62.0, 63.0],
    "simclr": [62.5, 62.5, 62.5],
    "rotation": [50.0] * 3,
    "supervised": [80.0] * 3,
}


@pytest.fixture
def rendered(results_of: Make) -> dict[str, Any]:
    asked = plan(["linear-evaluation"], REQUEST)
    results = results_of(asked, lambda e: ACCURACIES[e.run.method][e.run.seed - 1])
    return render.document(asked.tables[0], results)


def cell(document: dict[str, Any], row: str) -> dict[str, Any]:
    return next(c for c in document["sheets"][0]["cells"] if c["row_key"] == row)


def test_mean_sample_std_difference_and_best(rendered: dict[str, Any]) -> None:
    ours = cell(rendered, "relational")
    assert (ours["ours"], ours["ours_std"], ours["n"]) == (62.0, statistics.stdev([61, 62, 63]), 3)
    assert (ours["paper"], ours["paper_std"]) == (61.03, 0.23)
    assert ours["difference"] == pytest.approx(62.0 - 61.03)
    assert (ours["best"], ours["paper_best"]) == (False, True)
    assert cell(rendered, "simclr")["best"]
    assert not cell(rendered, "supervised")["best"]  # an upper bound takes no part
    assert rendered["complete"]


def test_ranking_counts_pairs_in_the_same_order(rendered: dict[str, Any]) -> None:
    # Paper: relational > simclr > rotation. Ours swaps the first two: 2 of 3, tau (2 - 1) / 3. Supervised is a bound.
    assert rendered["sheets"][0]["ranking"] == [
        {"column": "conv4-cifar10", "pairs": 3, "agree": 2, "kendall_tau": 0.3333}
    ]


def test_markdown(rendered: dict[str, Any]) -> None:
    text = render.to_markdown(rendered)
    assert "| Relational Reasoning (ours) | 62.00 ± 1.00 (n = 3)<br>paper **61.03 ± 0.23**<br>+0.97 |" in text
    assert "| SimCLR | **62.50 ± 0.00 (n = 3)**<br>paper 60.43 ± 0.26<br>+2.07 |" in text
    assert "2/3, τ +0.33" in text
    assert "n − 1" in text


def test_csv_is_one_line_per_cell(rendered: dict[str, Any]) -> None:
    lines = list(csv.DictReader(io.StringIO(render.to_csv(rendered))))
    assert len(lines) == 4
    ours = next(line for line in lines if line["row"].startswith("Relational"))
    assert (float(ours["ours"]), float(ours["paper"]), ours["n"], ours["status"]) == (62.0, 61.03, "3", "done")
    assert (ours["ranking_agree"], ours["ranking_pairs"], ours["kendall_tau"]) == ("2", "3", "0.3333")


def test_every_form_says_which_cells_are_not_of_the_paper_s_conditions(tmp_path: Path) -> None:
    request = Request(("cifar10",), ("conv4",), ("relational", "random"), (1,), Scale(epochs=2))
    document = render.document(plan(["linear-evaluation"], request).tables[0], Results(tmp_path))
    conditions = {line["row"]: line["conditions"] for line in csv.DictReader(io.StringIO(render.to_csv(document)))}
    assert conditions == {"Relational Reasoning (ours)": "2 of 200 epochs", "Random Weights (lower bound)": ""}
    assert document["sheets"][0]["conditions"] == "2 of 200 epochs"
    text = render.to_markdown(document)
    assert "not the paper's conditions: 2 of 200 epochs" in text.splitlines()[0]
    assert "Here: 2 of 200 epochs." in text


def test_missing_cells_are_words_never_numbers(tmp_path: Path) -> None:
    document = render.document(plan(["main"]).tables[0], Results(tmp_path))
    assert not document["complete"]
    text = render.to_markdown(document)
    assert "*missing*<br>paper **46.17 ± 0.17** |" in text
    assert "| n/a |" in text
    assert all(c["ours"] is None and c["difference"] is None for c in document["sheets"][0]["cells"])
    lines = csv.DictReader(io.StringIO(render.to_csv(document)))
    assert {line["ours"] for line in lines} == {""}
    json.dumps(document, allow_nan=False)


def test_literature_rows_and_deltas(tmp_path: Path, results_of: Make) -> None:
    text = render.to_markdown(render.document(plan(["finetune"]).tables[0], Results(tmp_path)))
    assert "| Invariant Info Clustering<br><sub>ResNet-34, Ji et al. 2019</sub> | reported 88.80 |  |" in text
    request = Request(("cifar10", "cifar100"), ("conv4",), ("rotation",), (1,))
    asked = plan(["domain-transfer"], request)
    results = results_of(asked, lambda e: 10.0 * len(e.run.data) + len(e.dataset))
    cells = {c["column_key"]: c for c in render.document(asked.tables[0], results)["sheets"][0]["cells"]}
    home = next(e for e in asked.evaluations if e.run.data == e.dataset == "cifar100")
    actual = results.result(home)
    assert actual is not None
    assert cells["conv4-10-100-delta"]["ours"] == pytest.approx(cells["conv4-10-100"]["ours"] - actual["accuracy"])
    assert cells["conv4-10-100-delta"]["ours_std"] is None
