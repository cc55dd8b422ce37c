"""`build`: run folders in, one HTML file out."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from relatum.errors import InputError
from relatum.report import embedding, matrices, overview, pictures, retrieval, tables, training
from relatum.report.markup import Child, Html, el, escape, name_of, script_json
from relatum.report.page import Page, Paper, missing
from relatum.report.paper_figures import paper_lookup
from relatum.report.runfolder import read_runs
from relatum.report.words import BACKBONES, DATASETS, METHODS, title
from relatum.system.files import write_text
from relatum.version import __version__

SCRIPTS = ("page.js", "map.js", "mapinput.js")
NAVIGATION = (
    ("overview", "Overview"),
    ("map", "Map"),
    ("retrieval", "Nearest"),
    ("errors", "Errors"),
    ("training", "Training"),
    ("views", "Views"),
    ("pairs", "Pairs"),
    ("evaluations", "Evaluations"),
    ("recipe", "Recipe"),
    ("skipped", "Left out"),
    ("missing", "Missing"),
)


def build(runs: Sequence[Path | str], out: Path | str, *, paper: Paper | None = None) -> Path:
    """Write one self-contained HTML page about runs.

    The same run folders give the same page, byte for byte.

    Args:
        runs: run folders; several are shown side by side.
        out: the file to write.
        paper: what the paper found under a condition, as (mean, deviation) or None; by default from `relatum.paper`.

    Returns:
        The path of the page.
    """
    page = Page(read_runs([Path(run) for run in runs]), __version__, paper if paper is not None else paper_lookup())
    out = Path(out)
    if out.is_dir():
        raise InputError(f"{out} is a folder; name a file, for example --out {out / 'report.html'}.")
    # Sections first: reading an artifact may add a note, and the overview shows the notes.
    sections: list[Html | None] = [
        embedding.embedding_map(page),
        retrieval.neighbours(page),
        matrices.errors(page),
        training.training(page),
        pictures.views(page),
        pictures.pairs(page),
        tables.evaluations(page),
        tables.recipes(page),
        tables.skipped(page),
    ]
    sections = [overview.overview(page), *sections, missing(page)]
    try:
        write_text(out, _document(page, [s for s in sections if s is not None]))
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror or error}.") from None
    return out


def _document(page: Page, sections: Sequence[Html]) -> str:
    script = "".join(_asset(name) for name in SCRIPTS)
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    there = {s.split('id="', 1)[1].split('"', 1)[0] for s in sections}
    links = [el("a", text, href=f"#{name}") for name, text in NAVIGATION if name in there]
    parts = {
        "TITLE": escape(_title(page)),
        "POLICY": f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
        "STYLE": _asset("page.css"),
        "HEADER": _header(page),
        "NAVIGATION": "".join(links),
        "SECTIONS": "\n".join(sections),
        "VERSION": escape(page.version),
        "DATA": script_json({**page.data, "atlas": page.atlas.encode()}),
        "SCRIPT": script,
    }
    head, *rest = _asset("page.html").split("{{")
    # One pass over the template: what is put in is never searched for more places.
    return head + "".join(parts[name] + text for name, text in (piece.split("}}", 1) for piece in rest))


def _asset(name: str) -> str:
    return resources.files("relatum.report").joinpath(name).read_text("utf-8").replace("\r\n", "\n")


def _title(page: Page) -> str:
    return f"{', '.join(run.name for run in page.runs[:4])} · relatum"


def _header(page: Page) -> Html:
    if page.several:
        heading: list[Child] = [f"{len(page.runs)} runs"]
        words: list[Child] = [
            name_of(run.name) if i == 0 else [", ", name_of(run.name)] for i, run in enumerate(page.runs)
        ]
    else:
        run = page.runs[0]
        heading, words = [name_of(run.name)], []
        method, backbone, epochs = run.setting("method"), run.setting("backbone.name"), run.setting("train.epochs")
        if method and backbone:
            words = [f"{title(METHODS, method)} with ", name_of(title(BACKBONES, backbone))]
            words += [" on ", name_of(title(DATASETS, run.data_name))] if run.data_name else []
            views = run.setting("views.number")
            words += [f", {views} views of each image"] if views and views != 1 else []
            words += [f", {epochs} epochs"] if epochs else []
    return el("div", el("h1", heading), el("p", words, class_="subtitle") if words else None)
