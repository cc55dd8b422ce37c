"""The page in a real browser: headless Chromium, driven over plain WebDriver.

Skipped where chromium or chromedriver is not installed (Debian: `apt-get install chromium chromium-driver`).
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from browser import CHROMIUM, DRIVER, Browser
from runmaker import CLASSES, HOSTILE, RunMaker, blobs

from relatum.report import build

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None,
        reason="needs chromium and chromedriver (apt-get install chromium chromium-driver)",
    ),
]

# Read when this file is imported: a fixture of the suite hides the real data afterwards.
BATCH = Path(os.environ.get("RELATUM_DATA", "data")) / "cifar-10-batches-py" / "test_batch"
CENTRE = "const b = document.querySelector('.marks').getBoundingClientRect();"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as driver:
        yield driver


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs with maps of 10,000 points: real CIFAR-10 test images where they are at hand, else noisy ones."""
    folder = tmp_path_factory.mktemp("report")
    images, labels = _ten_thousand()
    ours = RunMaker(folder / "ours").full(images, labels)
    theirs = RunMaker(folder / "theirs", method="simclr", seed=1).full(images, labels)
    return build([ours, theirs], folder / "report.html")


def _ten_thousand() -> tuple[np.ndarray, np.ndarray]:
    if BATCH.exists():
        batch = pickle.loads(BATCH.read_bytes(), encoding="bytes")
        return np.ascontiguousarray(batch[b"data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), np.array(
            batch[b"labels"]
        )
    noisy = blobs(10_000).astype(int) + np.random.default_rng(0).integers(-40, 40, (10_000, 32, 32, 3))
    return np.clip(noisy, 0, 255).astype(np.uint8), np.arange(10_000) % 10


def place(browser: Browser, i: int) -> tuple[float, float]:
    """Where a point of the first map is on the screen."""
    browser.run("document.querySelector('.map-stage').scrollIntoView({block: 'center', behavior: 'instant'})")
    return tuple(
        browser.run(f"{CENTRE} const m = maps[0]; return [b.left + m.sx(arguments[0]), b.top + m.sy(arguments[0])]", i)
    )


def test_it_loads_and_asks_for_nothing(browser: Browser, page: Path) -> None:
    assert page.stat().st_size <= 15_000_000
    browser.media("light")
    browser.open(page)
    assert browser.console() == []
    assert {url.split(":", 1)[0] for url in browser.requests()} == {"file"}
    assert (
        browser.run("return performance.getEntriesByType('resource').filter((e) => !e.name.startsWith('data:')).length")
        == 0
    )
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth")


def test_hover_shows_an_image(browser: Browser, page: Path) -> None:
    browser.open(page)
    for i in (17, 4021, 9999):
        browser.mouse(*place(browser, i))
        time.sleep(0.1)
        card = browser.run(
            """const c = document.querySelector('.map-card'), k = c.querySelector('canvas');
            const pixels = new Set(new Uint32Array(k.getContext('2d').getImageData(0, 0, 96, 96).data.buffer));
            const box = c.getBoundingClientRect().width;
            return {hidden: c.hidden, text: c.innerText, colours: pixels.size, box}"""
        )
        assert not card["hidden"]
        assert card["box"] > 90
        assert card["colours"] > 50  # a picture, not a blank
        assert card["text"].split()[0] in CLASSES


def test_click_shows_neighbours_in_both_maps(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.mouse(*place(browser, 4021), click=True)
    selected = browser.run("return maps[0].selected")
    expected = browser.run("return maps[0].near(arguments[0]).length", selected)
    assert expected == 8
    assert browser.run("return document.querySelectorAll('[data-map=\"0\"] .selected-near button').length") == 8
    assert browser.run("return maps[1].selected") == selected
    frames = browser.run(
        "return [...document.querySelectorAll('[data-map=\"0\"] .selected-near button')].map((b) => b.className)"
    )
    assert set(frames) <= {"hit", "miss"}
    first = browser.run("return maps[0].near(arguments[0])[0]", selected)
    browser.run("document.querySelector('[data-map=\"0\"] .selected-near button').click()")
    assert browser.run("return maps[0].selected") == first


def test_colours_switch_and_classes_can_be_isolated(browser: Browser, page: Path) -> None:
    browser.open(page)
    picture = "return document.querySelector('.dots').toDataURL()"
    legend = "return [...document.querySelectorAll('[data-map=\"0\"] .legend button')].map((b) => b.textContent)"
    by_class, names = browser.run(picture), browser.run(legend)
    assert names == list(CLASSES)
    browser.run(
        "const s = document.querySelector('[name=colour]'); s.value = 'super'; s.dispatchEvent(new Event('change'))"
    )
    assert browser.run(legend) == ["animals", "vehicles"]
    by_super = browser.run(picture)
    assert by_super != by_class
    browser.run("document.querySelector('[data-map=\"0\"] .legend button').click()")
    assert (
        browser.run("return document.querySelector('[data-map=\"0\"] .legend button').getAttribute('aria-pressed')")
        == "true"
    )
    assert browser.run(picture) != by_super
    browser.run(
        "const s = document.querySelector('[name=show]'); s.value = 'images'; s.dispatchEvent(new Event('change'))"
    )
    assert browser.run("return maps[0].mosaic.size") > 50
    assert browser.console() == []


def test_a_map_without_labels_is_coloured_by_folder_and_date(browser: Browser, tmp_path: Path) -> None:
    run = RunMaker(tmp_path / "photos", dataset="photos")
    run.full(blobs(120), None, names=[f"{'sea' if i % 3 else 'hills'}/{i:04d}.jpg" for i in range(120)])
    browser.open(build([run.folder], tmp_path / "report.html"))
    legend = "return [...document.querySelectorAll('[data-map=\"0\"] .legend button')].map((b) => b.textContent)"
    assert browser.run(legend) == ["hills", "sea"]
    assert browser.run("return new Set(maps[0].group).size") == 2
    browser.run(
        "const s = document.querySelector('[name=colour]'); s.value = 'date'; s.dispatchEvent(new Event('change'))"
    )
    assert browser.run(legend) == ["2020", "2021", "2022"]
    assert browser.console() == []


def test_zoom_pan_and_keyboard(browser: Browser, page: Path) -> None:
    browser.open(page)
    x, y = place(browser, 100)
    browser.run("document.querySelector('[data-do=in]').click()")
    time.sleep(0.1)
    scale = browser.run("return maps[0].view.scale / maps[0].least")
    assert scale == pytest.approx(1.6)
    before = browser.run("return maps[0].view.x")
    browser.mouse(x, y, drag_to=(x + 80, y))
    time.sleep(0.1)
    assert browser.run("return maps[0].view.x") == pytest.approx(before + 80, abs=2)
    browser.run("document.querySelector('.marks').focus()")
    browser.keys("0")
    assert browser.run("return maps[0].view.scale === maps[0].least")
    browser.keys("\ue014", "\ue014", "\ue007")  # right, right, Enter
    assert browser.run("return maps[0].selected") >= 0
    assert "Enter shows its nearest images" in browser.run(
        "return document.querySelector('.marks').getAttribute('aria-label')"
    )
    browser.keys("\ue00c")  # Escape
    assert browser.run("return maps[0].selected") == -1
    browser.keys("+")
    time.sleep(0.1)
    assert browser.run("return maps[0].view.scale > maps[0].least")


def test_curves_and_matrices_are_drawn(browser: Browser, page: Path) -> None:
    browser.open(page)
    lines = browser.run(
        """return [...document.querySelectorAll('figure.chart .line')].map((line) => {
          const b = line.getBBox(); return [b.width, b.height] })"""
    )
    assert len(lines) >= 6
    assert all(width > 250 for width, _ in lines)
    assert max(height for _, height in lines) > 60
    box = browser.run(
        """const svg = document.querySelector('figure.chart svg');
        svg.scrollIntoView({block: 'center', behavior: 'instant'});
        const b = svg.getBoundingClientRect(); return [b.left + b.width / 2, b.top + b.height / 2]"""
    )
    browser.mouse(*box)
    tip = browser.run("const t = document.querySelector('.tip'); return t.hidden ? '' : t.innerText")
    assert 80 < float(tip.split()[1]) < 110  # the middle of 200 epochs
    assert tip.startswith("epoch")
    assert "ours" in tip
    cells = browser.run(
        "return [...document.querySelectorAll('.matrix')].map((t) => t.querySelectorAll('tbody td').length)"
    )
    assert cells == [100] * 6
    shown = "return [...document.querySelectorAll('[role=tabpanel]')].slice(0, 3).map((p) => p.checkVisibility())"
    assert browser.run(shown) == [True, False, False]
    browser.run("document.querySelector('[role=tab]').focus()")
    browser.keys("\ue014")
    assert browser.run(shown) == [False, True, False]
    colour = browser.run("return getComputedStyle(document.querySelector('.matrix .d')).backgroundColor")
    assert colour not in ("", "rgba(0, 0, 0, 0)")


def test_hostile_names_are_shown_as_text(browser: Browser, tmp_path: Path) -> None:
    names = [*HOSTILE, *(f"{i}.png" for i in range(100))][:100]
    classes = [f"<img src=x onerror=\"document.title='pwned'\">{i}" for i in range(10)]
    run = RunMaker(tmp_path / "<svg onload=alert(1)>")
    run.full(blobs(100), np.arange(100) % 10, names=names, classes=classes)
    run.info(classes=classes, skipped=[{"path": name, "reason": "?"} for name in HOSTILE[:-1]])
    browser.open(build([run.folder], tmp_path / "report.html"))
    for i in range(len(HOSTILE)):
        browser.run("maps[0].point(arguments[0]); maps[0].choose(arguments[0])", i)
        card = browser.run("return document.querySelector('.map-card').innerText")
        assert "<img src=x onerror=" in card
    assert HOSTILE[0] in browser.run("maps[0].choose(0); return document.querySelector('.selected').innerText")
    assert HOSTILE[1] in browser.run("return document.querySelector('#skipped').innerText")
    assert browser.run("return document.querySelector('.legend').innerText").startswith("<img src=x onerror=")
    assert "pwned" not in browser.run("return document.title")
    assert browser.run("return document.querySelectorAll('img[onerror], svg[onload], main script').length") == 0
    assert browser.console() == []
    assert {url.split(":", 1)[0] for url in browser.requests()} == {"file"}


def test_unlabelled_folder(browser: Browser, tmp_path: Path) -> None:
    run = RunMaker(tmp_path / "photos", dataset="photos")
    run.full(blobs(300), None, names=[f"2019/IMG_{i:04d}.jpg" for i in range(300)])
    browser.open(build([run.folder], tmp_path / "report.html"))
    assert browser.run("return maps[0].mosaic.size") > 20
    browser.run(
        """const s = document.querySelector('[name=find]');
        s.value = 'img_0123'; s.dispatchEvent(new Event('input')); s.focus()"""
    )
    browser.keys("\ue007")
    assert browser.run("return maps[0].name(maps[0].selected)") == "2019/IMG_0123.jpg"
    assert "Nearest images" in browser.run("return document.querySelector('.selected').innerText")
    assert browser.console() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow_screen_and_print(scheme: str, browser: Browser, page: Path, tmp_path: Path) -> None:
    browser.media(scheme)
    browser.size(390, 844, mobile=True)
    browser.open(page)
    assert browser.run("return document.documentElement.scrollWidth") == 390
    small = browser.run(
        """return [...document.querySelectorAll('main p, main td, main li, main dd')]
          .filter((e) => parseFloat(getComputedStyle(e).fontSize) < 11).length"""
    )
    assert small == 0
    browser.media("dark" if scheme == "light" else "light", media="print")
    background = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert background == "rgb(255, 255, 255)"  # paper is white, whatever the screen is
    assert browser.run("return getComputedStyle(document.querySelector('nav')).display") == "none"
    browser.media("light")
    browser.size(1400, 900)
    assert browser.console() == []
