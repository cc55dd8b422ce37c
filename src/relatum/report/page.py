"""What the sections of a page share: the runs, the images, the data for page.js, and the small words between things."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from relatum.report.images import Atlas
from relatum.report.markup import Child, Html, clean, el, name_of
from relatum.report.runfolder import Run

# What the paper found under a condition (method, backbone, pretrain, dataset, split, protocol): mean and deviation.
Paper = Callable[[Mapping[str, Any]], "tuple[float, float | None] | None"]
Words = list[tuple[Run, str]]
LINE_COLOURS = 8


@dataclass
class Page:
    """A page in the making.

    Attributes:
        runs: what it shows.
        version: of the relatum that makes it.
        paper: the paper's figures, or None.
        atlas: thumbnails of the maps.
        data: what page.js reads: charts, matrices, maps.
        missing: headings of sections that no run fills, and why.
    """

    runs: list[Run]
    version: str
    paper: Paper | None = None
    atlas: Atlas = field(default_factory=Atlas)
    data: dict[str, list[Any]] = field(default_factory=lambda: {"charts": [], "matrices": [], "maps": []})
    missing: list[tuple[str, Html]] = field(default_factory=list)

    @property
    def several(self) -> bool:
        """Whether runs stand side by side and have to be named."""
        return len(self.runs) > 1

    def colour(self, run: Run) -> int:
        """The number of a run's line colour."""
        return self.runs.index(run) % LINE_COLOURS

    def paper_figure(self, condition: Mapping[str, Any]) -> tuple[float, float | None] | None:
        """The paper's figure for a condition, or None where it has none."""
        return self.paper(condition) if self.paper is not None else None

    def run_heading(self, run: Run, *more: Child) -> Html | None:
        """A heading with the run's name where there are several; otherwise only what there is to add."""
        if not self.several:
            return el("h3", *more) if any(more) else None
        dot = el("i", class_="swatch", style=f"--c:var(--s{self.colour(run)})")
        return el("h3", dot, name_of(run.name), [el("span", " · ", *more, class_="unit")] if any(more) else None)


def section(name: str, heading: str | None, *body: Child, lead: Child = None, label: str | None = None) -> Html:
    """A landmark with its heading; the first section's heading is the page's own."""
    title = el("h2", heading, id=f"{name}-title") if heading else None
    words = el("p", lead, class_="lead") if lead else None
    labelled = {"aria_labelledby": f"{name}-title"} if heading else {"aria_label": label}
    return el("section", title, words, *body, id=name, **labelled)


def filled(page: Page, name: str, heading: str, words: Words, body: Html | None, lead: Child) -> Html | None:
    """A section with what there is, and words on what there is not; where there is nothing, the words go to the end."""
    notes = [note(page, [r for r, said in words if said == text], text) for text in dict.fromkeys(t for _, t in words)]
    if body is None:
        page.missing.append((heading, Html("".join(notes))))
        return None
    return section(name, heading, notes, body, lead=lead)


def missing(page: Page) -> Html | None:
    """The last section: a clear word on everything that this page does not show."""
    if not page.missing:
        return None
    blocks = [el("div", el("dt", heading), el("dd", words)) for heading, words in page.missing]
    return section("missing", "Not in this page", el("dl", blocks, class_="missing"))


def note(page: Page, runs: Sequence[Run], text: str) -> Html:
    """A clear word on what there is not, and for which runs where there are several; `code` between backticks."""
    parts = [el("code", part) if i % 2 else clean(part) for i, part in enumerate(text.split("`"))]
    names = [[", " if i else "", el("strong", name_of(run.name))] for i, run in enumerate(runs)]
    return el("p", [names, ": "] if names and page.several else None, parts, class_="note")


def side_by_side(panels: list[Html], wide: bool = False) -> Html | None:
    """Panels of several runs beside one another where there is room."""
    if not panels:
        return None
    return el("div", panels, class_="panels wide" if wide else "panels")
