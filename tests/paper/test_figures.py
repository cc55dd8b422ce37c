from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from relatum.paper import figures, published
from relatum.paper.cells import Plan, Request
from relatum.paper.grid import Evaluation
from relatum.paper.measured import Results
from relatum.paper.plan import plan
from relatum.runs import artifacts


@pytest.mark.parametrize("name", published.FIGURES + published.BEYOND)
def test_every_figure_is_drawn_even_without_runs(name: str, tmp_path: Path) -> None:
    paths = figures.draw(plan([name]).tables[0], Results(tmp_path), tmp_path / "figures")
    assert [p.name for p in paths] == [f"{name}.png", f"{name}.svg"]
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    assert paths[1].read_text("utf-8").rstrip().endswith("</svg>")
    pixels = np.asarray(Image.open(paths[0]).convert("L"))
    assert (pixels[:, [0, -1]] == 255).all(), "something is cut off at the side"


def test_bars_without_a_figure_are_words(
    tmp_path: Path, results_of: Callable[[Plan, Callable[[Evaluation], float]], Results]
) -> None:
    asked = plan(["fig-depth"], Request(methods=("relational", "simclr"), seeds=(1,)))
    some = plan(["fig-depth"], Request(("cifar10",), methods=("relational",), seeds=(1,)))
    results = results_of(some, lambda e: 60.0 + 10.0 * (e.run.backbone == "resnet32"))
    failed = next(e for e in asked.evaluations if (e.run.method, e.run.data) == ("simclr", "cifar10"))
    results.log(failed.run).parent.mkdir(parents=True)
    results.log(failed.run).write_text(json.dumps({"what": failed.run.id, "returncode": 1, "error": "no luck"}))
    svg = figures.draw(asked.tables[0], results, tmp_path)[1].read_text("utf-8")
    bar_labels = re.findall(r">(missing|failed)<", svg)
    assert sorted(bar_labels) == ["failed", "missing", "missing", "missing", "missing"]


def test_the_study_of_k_says_what_is_missing(
    tmp_path: Path, results_of: Callable[[Plan, Callable[[Evaluation], float]], Results]
) -> None:
    asked = plan(["fig-augmentations"], Request(methods=("relational",), seeds=(1,)))
    results = results_of(asked, lambda e: 50.0 + e.run.views)
    base = next(e for e in asked.evaluations if e.run.views == 2)
    (results.run_dir(base.run) / "evaluations" / base.file).unlink()
    svg = figures.draw(asked.tables[0], results, tmp_path)[1].read_text("utf-8")
    assert "missing at K = 2; without K = 2" in svg
    assert "no runs yet" not in svg


def test_tables_are_not_drawn(tmp_path: Path) -> None:
    assert figures.draw(plan(["grain"]).tables[0], Results(tmp_path), tmp_path) == []


def test_a_figure_shows_our_runs_and_what_was_changed(
    tmp_path: Path, results_of: Callable[[Plan, Callable[[Evaluation], float]], Results]
) -> None:
    asked = plan(["fig-augmentations"], Request(backbones=("resnet8",), seeds=(1,)))
    results = results_of(asked, lambda e: 50.0 + e.run.views)
    svg = figures.draw(asked.tables[0], results, tmp_path)[1].read_text("utf-8")
    assert "resnet8 in place of conv4" in svg
    assert "no runs yet" not in svg
    again = figures.draw(asked.tables[0], results, tmp_path / "again")[1].read_text("utf-8")
    assert svg == again


@pytest.mark.parametrize(("name", "legend"), [("tsne", "cat"), ("tsne-super", "vehicles")])
def test_maps_are_drawn_from_what_the_evaluation_left(
    name: str, legend: str, tmp_path: Path, results_of: Callable[[Plan, Callable[[Evaluation], float]], Results]
) -> None:
    asked = plan([name], Request(methods=("relational",), seeds=(1,)))
    results = results_of(asked, lambda e: 50.0 + e.run.views)
    draws = np.random.default_rng(0)
    artifacts.save_tsne(
        results.run_dir(asked.runs[0]),
        "cifar10",
        "test",
        xy=draws.normal(size=(40, 2)),
        thumbs=np.zeros((40, 2, 2, 3), np.uint8),
        neighbours=np.zeros((40, 8), np.int64),
        labels=np.arange(40) % 3,
        classes=["plane", "cat", "dog"],
        super_labels=np.arange(40) % 2,
        super_names=["vehicles", "animals"],
    )
    svg = figures.draw(asked.tables[0], results, tmp_path)[1].read_text("utf-8")
    assert legend in svg
    assert "no runs yet" not in svg
