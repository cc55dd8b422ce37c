"""The pages of real runs, from training to the browser: the demo's, and one of a short CIFAR-10 run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from browser import CHROMIUM, DRIVER, Browser

from relatum import api, demo

# Read when this file is imported: a fixture of the suite hides the real data afterwards.
CIFAR10 = Path(os.environ.get("RELATUM_DATA", "data")) / "cifar-10-batches-py"
WITHOUT_BROWSER = CHROMIUM is None or DRIVER is None
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        WITHOUT_BROWSER, reason="needs chromium and chromedriver (apt-get install chromium chromium-driver)"
    ),
]


def look(page: Path, points: int) -> str:
    """Open a page, point at and choose a point of its map, and give back its text."""
    with Browser() as browser:
        assert browser.open(page) < 3
        assert browser.run("return maps[0].n") == points
        browser.run("maps[0].point(1); maps[0].choose(2)")
        assert browser.run("return document.querySelectorAll('.selected-near button').length") == 8
        assert not browser.run("return document.querySelector('.map-card').hidden")
        assert browser.run("return document.querySelectorAll('figure.chart .line').length") >= 3
        assert browser.run("return document.querySelectorAll('.matrix').length") == 3
        assert browser.console() == []
        assert {url.split(":", 1)[0] for url in browser.requests()} == {"file"}
        return str(browser.run("return document.body.innerText"))


def test_the_demo(tmp_path: Path) -> None:
    demo.run_demo(tmp_path / "demo", epochs=1)
    text = look(tmp_path / "demo" / "report.html", 1000)
    for phrase in (
        "3 runs",
        "Linear evaluation on shapes",
        "Views used for training",
        "Relation scores of pairs",
        "Chance",
    ):
        assert phrase in text


@pytest.mark.data
@pytest.mark.skipif(not CIFAR10.exists(), reason="needs CIFAR-10 in $RELATUM_DATA")
def test_a_real_cifar10_run(tmp_path: Path) -> None:
    root = CIFAR10.parent
    flags = {"root": root, "views": 4, "epochs": 1, "limit_train": 1024, "compile": "off", "quiet": True}
    run = api.pretrain("cifar10", out=tmp_path / "run", **flags)
    api.evaluate("linear", run, data="cifar10", root=root, epochs=1)
    api.evaluate("retrieval", run, data="cifar10", root=root, settings={"queries_per_class": 20})
    api.evaluate("tsne", run, data="cifar10", root=root, settings={"points": 500, "iterations": 300})
    text = look(api.report([run], out=tmp_path / "report.html"), 500)
    for phrase in (
        "Linear evaluation on CIFAR-10",
        "in the paper, 200 epochs, K = 32, all images",
        "Confident positives",
    ):
        assert phrase in text
    assert "Not available" not in text
