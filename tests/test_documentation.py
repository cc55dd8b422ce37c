"""Every command and every Python block of README.md and docs/ runs, on small images and with little training."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image, ImageOps

from relatum.cli import main
from relatum.data.decode import decode, to_square

ROOT = Path(__file__).parents[1]
# The first two are generated and have tests of their own; the example of the third is run by test_adding_a_method.py.
ELSEWHERE = {"reference.md", "errors.md", "adding-a-method.md"}
PAGES = [ROOT / "README.md", *sorted(page for page in (ROOT / "docs").glob("*.md") if page.name not in ELSEWHERE)]
LESS = {  # added to a command, so that it takes seconds
    "pretrain": "--views 2 --epochs 1 --limit-train 64 --overwrite",
    "explore": "--minutes 0.02",
    "evaluate linear": "--epochs 1 --set limit_train=64",
    "reproduce": "--dry-run",
}
LESS_PYTHON = {  # replaced in a Python block
    "minutes=5": "minutes=0.02",
    'backbone="resnet34", views=16, epochs=100': "views=2, epochs=1",
    'data="cifar10")': 'data="shapes", epochs=1, settings={"limit_train": 64})',
}
NOT_RUN = {"torchrun", "source", "pip"}


def blocks(page: Path, language: str) -> list[str]:
    found = re.findall(r"(?ms)^```(\w*)\n(.*?)^```$", page.read_text("utf-8"))
    return [text for kind, text in found if kind == language]


def commands(page: Path) -> list[list[str]]:
    lines = [line for text in blocks(page, "") for line in text.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home with 24 photos in two sub-folders, a query, and the ledger."""
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    draws = np.random.default_rng(0)
    for i in range(24):
        file = tmp_path / "photos" / ("cats" if i % 2 else "dogs") / f"{i:02d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        coarse = draws.integers(0, 200, (5, 5, 3)) + (np.array([50, 0, 0]) if i % 2 else np.array([0, 0, 50]))
        Image.fromarray(coarse.astype(np.uint8)).resize((40, 40), Image.Resampling.BICUBIC).save(file)
    Image.open(tmp_path / "photos/cats/01.png").save(tmp_path / "query.jpg")
    (tmp_path / "results").mkdir()
    for entry in (ROOT / "results").glob("*.json"):
        shutil.copy(entry, tmp_path / "results")
    return tmp_path


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.name)
def test_commands_run(page: Path, world: Path) -> None:
    targets = set(re.findall(r"(?m)^([\w-]+):", (ROOT / "Makefile").read_text("utf-8")))
    for program, *words in commands(page):
        if program == "make":
            assert set(words) <= targets
        elif program not in NOT_RUN and not any("://" in word for word in words):  # no test needs the network
            assert program == "relatum"
            arguments = [os.path.expanduser(word) for word in words]  # noqa: PTH111
            for start, more in LESS.items():
                if " ".join(words).startswith(start) and not {"--dry-run", "--render"} & set(words):
                    arguments += more.split()
            if (
                not (world / "runs/photos").exists()
                and "runs/photos" in words
                and words[0] not in ("pretrain", "explore")
            ):
                run("pretrain", "photos", "--out", "runs/photos", *LESS["pretrain"].split())
            run(*arguments)


def run(*arguments: str) -> None:
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    incomplete = 1 if "--render" in arguments else 0  # the ledger does not fill all cells of a table
    assert end.value.code in (0, None, incomplete), arguments


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.name)
def test_python_blocks_run(page: Path, world: Path) -> None:
    scope: dict[str, object] = {}
    for block in blocks(page, "python"):
        needed = re.findall(r"(?m)^# requires: (.*)", block)
        if any(importlib.util.find_spec(name.strip()) is None for line in needed for name in line.split(",")):
            continue
        for text, less in LESS_PYTHON.items():
            block = block.replace(text, less)
        exec(compile(block, page.name, "exec"), scope)


def test_the_reader_of_the_export_page_prepares_files_as_relatum_does(tmp_path: Path) -> None:
    """`features` of docs/export.md: a reduced JPEG file that is stored on its side, and a transparent PNG file."""
    draws, side = np.random.default_rng(0), 32
    colours = draws.integers(0, 256, (6, 8, 4), dtype=np.uint8)  # colours under transparent pixels too
    image = Image.fromarray(colours).resize((400, 300), Image.Resampling.BICUBIC)
    exif = Image.Exif()
    exif[0x0112] = 6
    image.convert("RGB").save(tmp_path / "a.jpg", exif=exif)
    image.save(tmp_path / "b.png")
    page = (ROOT / "docs" / "export.md").read_text("utf-8")
    (code,) = re.findall(r"(?ms)^def features\(path\):\n.*?\n(?=\n)", page)
    seen = []
    session = SimpleNamespace(run=lambda _, inputs: [[seen.append(inputs["pixels"][0])]])
    names = {"np": np, "Image": Image, "ImageOps": ImageOps, "side": side, "session": session}
    exec(code, names)
    for name, most in (("a.jpg", 3), ("b.png", 0)):
        names["features"](tmp_path / name)
        ours = decode(tmp_path / name, side).astype(int)
        assert np.abs(to_square(Image.fromarray(seen.pop()), side) - ours).max() <= most


@pytest.mark.slow
def test_the_site_is_built_without_a_broken_link(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    start = (tmp_path / "site" / "index.html").read_text("utf-8")
    assert "relation head" in start
    assert 'href="performance.html"' in start
    assert "minutes" in (tmp_path / "site" / "api.html").read_text("utf-8")
    shown = {
        page.name: re.findall(r'<img[^>]* src="([^":]+)"', page.read_text("utf-8"))
        for page in (tmp_path / "site").glob("*.html")
    }
    assert all((tmp_path / "site" / image).is_file() for images in shown.values() for image in images), shown
    assert "results/headline.svg" in shown["results.html"]  # pictures outside docs/
    assert "results/headline.svg" in shown["index.html"]
