"""The page of a collection: its data, and the page in a real browser (skipped where chromium is not installed)."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from browser import CHROMIUM, DRIVER, Browser
from PIL import Image

import relatum
from relatum import backbones
from relatum.collection.indexing import build_index, load_thumbnails
from relatum.collection.overview import overview
from relatum.report.collection_page import write_collection_page
from relatum.runs.weights import save_weights

HOSTILE = "a<script>alert(1).png"
in_browser = pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="needs chromium and chromedriver")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty pictures in two folders, one exact copy, one file name that is markup."""
    folder = tmp_path_factory.mktemp("photos")
    draws = np.random.default_rng(0)
    for i in range(60):
        path = folder / ("sea" if i < 30 else "hills") / f"{i:02d}.png"
        path.parent.mkdir(exist_ok=True)
        coarse = draws.integers(0, 120, (5, 5, 3)) + (np.array([0, 40, 130]) if i < 30 else np.array([90, 90, 0]))
        picture = Image.fromarray(coarse.astype(np.uint8)).resize((48, 48), Image.Resampling.BICUBIC)
        picture.save(path)
        if i == 4:
            picture.save(folder / "sea" / HOSTILE)
    (folder / "torn.jpg").write_bytes(b"not an image")
    run = tmp_path_factory.mktemp("run")
    facts = {"backbone": "conv4", "num_features": 64, "side": 32, "mean": [0.5] * 3, "std": [0.25] * 3}
    save_weights(run / "backbone.safetensors", backbones.build("conv4", seed=1).state_dict(), facts)
    shown = overview(build_index(run, folder, progress=False))
    return write_collection_page(run / "explore.html", "photos & more", shown, load_thumbnails(folder, shown.files))


def page_data(page: Path) -> dict[str, object]:
    actual = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text("utf-8"), re.S)
    assert actual is not None
    document: dict[str, object] = json.loads(actual[1])
    return document


def test_explore_needs_the_weights_of_a_finished_run_and_not_its_recipe(page: Path, tmp_path: Path) -> None:
    run = shutil.copytree(page.parent, tmp_path / "run")
    (run / "recipe.toml").write_text("damaged = [")
    photos = tmp_path / "photos"
    photos.mkdir()
    for i in range(12):
        Image.new("RGB", (40, 40), (20 * i, 90, 200 - 10 * i)).save(photos / f"{i}.png")
    litter = run / ".run.json.killed.part"  # a process was killed when its weights were written, but not yet its record
    litter.touch()
    assert relatum.explore(photos, out=run, quiet=True) == run / "explore.html"
    assert not litter.exists()


def test_the_page_holds_everything_and_loads_nothing(page: Path) -> None:
    data, text = page_data(page), page.read_text("utf-8")
    assert len(data["files"]) == 61  # type: ignore[arg-type]
    assert {"PCA", "t-SNE"} <= set(data["maps"])  # type: ignore[call-overload]
    assert set(data["groups"]["folder"]["names"]) == {"sea", "hills"}  # type: ignore[index]
    assert len(data["duplicates"]) == 1  # type: ignore[arg-type]
    assert sum(len(album) for album in data["albums"]) == 61  # type: ignore[attr-defined]
    assert "<script>alert" not in text
    assert "<bdi>torn.jpg</bdi>" in text
    assert "photos &amp; more" in text
    assert not re.search(r'(src|href)="(?!data:|#)', text)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as opened:
        yield opened


@pytest.mark.slow
@in_browser
def test_search_lasso_colours_and_names_work_in_a_browser(browser: Browser, page: Path) -> None:
    browser.size(1400, 900)
    browser.media("light")
    browser.open(page)
    assert browser.console() == []
    assert {url.split(":", 1)[0] for url in browser.requests()} == {"file"}
    data = page_data(page)
    browser.run("document.getElementById('stage').scrollIntoView({block: 'center', behavior: 'instant'})")
    x, y = browser.run(
        "const b = stage.getBoundingClientRect(), p = placement()(10); return [b.left + p[0], b.top + p[1]]"
    )
    hit = browser.run("const p = placement()(10); return at(p[0], p[1])")
    browser.mouse(x, y, click=True)
    assert browser.run("return document.getElementById('panel-title').textContent") == data["files"][hit]  # type: ignore[index]
    shown = browser.run("return [...document.querySelectorAll('#panel-images .tile')].map((t) => Number(t.dataset.i))")
    assert shown == [hit, *data["neighbours"][hit]]  # type: ignore[index]

    browser.run("document.getElementById('colour').value = 'folder'; colour.dispatchEvent(new Event('change'))")
    legend = browser.run("return [...document.querySelectorAll('#legend button')].map((b) => b.textContent)")
    assert legend == ["sea (31)", "hills (30)"]
    browser.run("method.value = 'PCA'; method.dispatchEvent(new Event('change'))")
    assert browser.run("return state.method") == "PCA"

    browser.run("document.getElementById('lasso').click()")
    browser.run(
        "const b = stage.getBoundingClientRect(), go = (type, u, v) => stage.dispatchEvent(new PointerEvent(type,"
        "{clientX: b.left + u * b.width, clientY: b.top + v * b.height, pointerId: 1, bubbles: true}));"
        "go('pointerdown', .001, .001); go('pointermove', .999, .001); go('pointermove', .999, .999);"
        "go('pointermove', .001, .999); go('pointerup', .001, .999)"
    )
    assert browser.run("return listed.length") == 61
    browser.cdp("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    browser.run("document.getElementById('copy').click()")
    for _ in range(50):
        if browser.run("return document.getElementById('done').textContent") == "61 names copied":
            break
    else:
        raise AssertionError(browser.run("return document.getElementById('done').textContent"))
    assert browser.run("return names().trim().split('\\n').length") == 61
    browser.run("document.getElementById('save').click()")
    assert "selection.txt" in browser.run("return document.getElementById('done').textContent")

    browser.run("document.getElementById('copies').click()")
    assert browser.run("return listed.map((i) => data.files[i])") == [
        data["files"][group["members"][1]]  # type: ignore[index]
        for group in data["duplicates"]  # type: ignore[attr-defined]
    ]
    browser.run("$('find').value = 'HILLS/4'; $('find').dispatchEvent(new Event('input'))")
    assert browser.run("return names().trim().split('\\n')") == [f"hills/4{i}.png" for i in range(10)]
    assert browser.run("return $('panel-title').textContent") == "10 file names with “HILLS/4”"
    browser.run("document.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape'}))")
    assert browser.run("return [state.selected, listed.length, $('find').value]") == [None, 0, ""]
    assert browser.console() == []


@pytest.mark.slow
@in_browser
def test_zoom_keeps_the_image_under_the_mouse(browser: Browser, page: Path) -> None:
    browser.size(1400, 900)
    browser.open(page)
    before = browser.run("return placement()(7)")
    browser.run(
        "const b = stage.getBoundingClientRect(), p = placement()(7); stage.dispatchEvent(new WheelEvent('wheel',"
        "{deltaY: -100, clientX: b.left + p[0], clientY: b.top + p[1], cancelable: true}))"
    )
    assert browser.run("return state.zoom") > 1.1
    # The event has whole pixels: at most half a pixel off, times the zoom less one.
    assert browser.run("return placement()(7)") == pytest.approx(before, abs=0.5)
    browser.run("const p = placement()(7); hover(at(p[0], p[1]))")
    assert not browser.run("return card.hidden")
    browser.run("document.getElementById('reset').click()")
    assert browser.run("return [state.zoom, state.x, state.y, card.hidden]") == [1, 0, 0, True]


@pytest.mark.slow
@in_browser
@pytest.mark.parametrize("width", [390, 1400])
def test_nothing_is_wider_than_the_screen(browser: Browser, page: Path, width: int) -> None:
    browser.size(width, 844, mobile=width < 500)
    browser.open(page)
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
    browser.run("document.querySelector('#album-list .tile').click()")
    assert browser.run("return document.querySelectorAll('#panel-images .tile').length") == 13


@pytest.mark.slow
@in_browser
def test_white_images_have_an_edge_and_sizes_stay_on_one_line(browser: Browser, page: Path) -> None:
    browser.size(390, 844, mobile=True)
    browser.open(page)
    tiles = "return [...document.querySelectorAll('.tile')].map((tile) => getComputedStyle(tile).boxShadow)"
    shadows = set(browser.run(tiles))
    assert len(shadows) == 1
    assert "inset" in shadows.pop()
    # A long file name leaves little room for the size behind it.
    longer = "for (const item of document.querySelectorAll('.row li')) item.prepend('w'.repeat({}))"
    for _ in range(12):
        browser.run(longer.format(3))
        lines = browser.run(
            "return [...document.querySelectorAll('.row small')].map((size) => size.getClientRects().length)"
        )
        assert lines
        assert set(lines) == {1}
