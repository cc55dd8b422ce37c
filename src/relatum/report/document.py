"""`build`: run folders in, one HTML file out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from relatum.errors import InputError
from relatum.report import (
    confusion,
    curves,
    embedding_map,
    nearest_images,
    overview,
    result_tables,
    views_and_pairs,
)
from relatum.report.page import Page, PaperValues, Section
from relatum.report.paper_values import paper_value
from relatum.report.rendering import render_page
from relatum.runs import names
from relatum.runs.folder import RunFolder
from relatum.runs.reading import read_runs
from relatum.system.files import FULL, write_text
from relatum.version import __version__

SCRIPTS = ("page.js", "map.js", "mapinput.js")


def build(runs: Sequence[Path | str], out: Path | str | None = None, *, paper: PaperValues | None = None) -> Path:
    """Write one self-contained HTML page about runs.

    The same run folders give the same page, byte for byte.

    Args:
        runs: run folders; several are shown side by side.
        out: the file to write; by default `report.html` in the first run.
        paper: returns the paper's (mean, standard deviation) for a condition, or None; by default from the tables
            in `relatum.paper`.

    Returns:
        The path of the page.
    """
    page = Page(read_runs([Path(run) for run in runs]), __version__, paper or paper_value)
    out = RunFolder(runs[0]).report if out is None else Path(out)
    if out.is_dir():
        raise InputError(f"{out} is a folder; name a file, for example --out {out / names.REPORT}.")
    sections = [
        embedding_map.embedding_maps(page),
        nearest_images.nearest_images(page),
        confusion.confusion(page),
        curves.training_curves(page),
        views_and_pairs.views(page),
        views_and_pairs.pairs(page),
        result_tables.evaluations(page),
        result_tables.recipes(page),
        result_tables.skipped_files(page),
    ]
    # The overview comes last because it shows the notes that the other sections add to the runs.
    sections.insert(0, overview.overview(page))
    try:
        write_text(out, _document(page, sections))
    except OSError as error:
        if error.errno in FULL:
            raise
        raise InputError(f"cannot write {out}: {error.strerror or error}.") from None
    return out


def _document(page: Page, sections: Sequence[Section]) -> str:
    return render_page(
        "page.html",
        scripts=SCRIPTS,
        styles=("page.css",),
        data={**page.data, "atlas": page.atlas.encode()},
        version=page.version,
        page=page,
        subtitle=overview.subtitle(page),
        sections=[s for s in sections if s.panels],
        missing={s.heading: s.notes for s in sections if not s.panels and s.heading and s.reasons},
    )
