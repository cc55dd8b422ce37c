"""The pictures of docs/tutorial.md: a folder of photographs, `relatum explore` on it, and screenshots of its page.

The photographs are CIFAR-10's, with ten re-encoded copies and five pictures of another kind. Run it with
`python docs/pictures.py FOLDER`; it takes seven minutes, and needs CIFAR-10 (`relatum data get cifar10`), chromium
and chromedriver. `make docs` does not run it. FOLDER is kept, so that a second run only takes the pictures.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

import relatum

HERE = Path(__file__).parent
PICTURES = HERE / "pictures"
MINUTES = 5
PHOTOS, COPIES = 1200, 10
QUERIES = ("ship", "horse", "automobile")


def write_photos(folder: Path) -> None:
    """Photographs in one sub-folder per class and an inbox with copies, noise, one colour, two pages and stripes."""
    images = relatum.data.load("cifar10")
    assert images.labels is not None
    for i in range(PHOTOS):
        file = folder / images.classes[images.labels[i]] / f"{i:04d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(images.images[i]).save(file)
    inbox = folder / "inbox"
    inbox.mkdir()
    draws = np.random.default_rng(1)
    for number, i in enumerate(draws.choice(PHOTOS, COPIES, replace=False)):
        side = (24, 32, 48, 64)[number % 4]
        Image.fromarray(images.images[i]).resize((side, side)).save(
            inbox / f"copy-{number}.jpg", quality=60 + 3 * number
        )
    Image.fromarray(draws.integers(0, 256, (300, 400, 3), dtype=np.uint8)).save(inbox / "noise.png")
    Image.new("RGB", (320, 240), "#ff00dc").save(inbox / "one-colour.png")
    for name, paper, ink in (("page.png", "white", "black"), ("terminal.png", "black", "#3cff3c")):
        page = Image.new("RGB", (400, 400), paper)
        for y in range(6, 400, 13):
            text = "".join(draws.choice(list("abcdefghijklm nopqrst uvwxyz "), 80))
            ImageDraw.Draw(page).text((6, y), text, fill=ink)
        page.save(inbox / name)
    stripes = np.indices((300, 300)).sum(0) // 12 % 2 * 255
    Image.fromarray(stripes.astype(np.uint8)).save(inbox / "stripes.png")


def screenshots(page: Path) -> None:
    """The sections of the page on a screen of 1,280 pixels, and its beginning on a telephone."""
    sys.path.insert(0, str(HERE.parent / "tests" / "support"))
    from browser import Browser

    with Browser() as browser, tempfile.TemporaryDirectory() as folder:
        browser.media("light")
        whole = Path(folder) / "page.png"
        browser.size(1280, 860)
        browser.open(page)
        browser.run("colour.value = 'folder'; colour.dispatchEvent(new Event('change'))")
        time.sleep(0.5)
        browser.screenshot(whole, full=True)
        with Image.open(whole) as picture:
            for part in ("map", "albums", "duplicates", "outliers"):
                box = browser.run(
                    f"const b = document.getElementById('{part}').getBoundingClientRect();"
                    "return [b.left + scrollX, b.top + scrollY, b.right + scrollX, b.bottom + scrollY]"
                )
                save(picture.crop(tuple(round(x) for x in box)), f"explore-{part}.jpg")
        browser.size(390, 844, mobile=True)
        browser.open(page)
        browser.run("colour.value = 'album'; colour.dispatchEvent(new Event('change'))")
        time.sleep(0.5)
        browser.screenshot(whole, full=True)
        with Image.open(whole) as picture:
            save(picture.crop((0, 0, 390, 1100)), "explore-narrow.jpg")


def save(picture: Image.Image, name: str) -> None:
    """Write a picture as JPEG: photographs as PNG are five times as large."""
    picture.convert("RGB").save(PICTURES / name, quality=82, optimize=True)


def main() -> None:
    """Write all pictures."""
    place = Path(sys.argv[1])
    photos, run = place / "photos", place / "run"
    if not photos.exists():
        write_photos(photos)
    page = relatum.explore(photos, minutes=MINUTES, out=run)
    PICTURES.mkdir(exist_ok=True)
    queries = [sorted((photos / name).iterdir())[0] for name in QUERIES]
    relatum.search(run, photos, queries, top=8, out=place / "sheet.png")
    with Image.open(place / "sheet.png") as sheet:
        save(sheet, "search.jpg")
    screenshots(page)


if __name__ == "__main__":
    main()
