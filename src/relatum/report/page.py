"""Shared by all sections of a page: the runs, the data for the scripts, and the `Section` class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from relatum.report.thumbnails import Atlas
from relatum.runs import names
from relatum.runs.artifacts import Arrays
from relatum.runs.reading import RunRecord

# From a condition (method, backbone, pretrain, dataset, split, protocol) to the paper's mean and standard deviation.
PaperValues = Callable[[Mapping[str, Any]], "tuple[float, float | None] | None"]
Panel = dict[str, Any]
Reason = tuple[RunRecord, str]
LINE_COLOURS = 8


@dataclass
class Page:
    """A page under construction.

    Attributes:
        runs: the runs it shows.
        version: the version of relatum that writes it.
        paper: the paper's values.
        atlas: thumbnails of the maps.
        data: what the scripts read: charts, matrices, maps.
    """

    runs: list[RunRecord]
    version: str
    paper: PaperValues
    atlas: Atlas = field(default_factory=Atlas)
    data: dict[str, list[Any]] = field(default_factory=lambda: {"charts": [], "matrices": [], "maps": []})

    @property
    def several(self) -> bool:
        """Whether there are several runs, so that each must be named."""
        return len(self.runs) > 1

    def colour(self, run: RunRecord) -> int:
        """The number of a run's line colour."""
        return self.runs.index(run) % LINE_COLOURS


@dataclass
class Section:
    """A section: rendered by `templates/NAME.html`, or listed under "Not available" if it has no panels.

    Attributes:
        name: its id and the name of its template.
        link: its name in the navigation.
        heading: its heading; None for the overview.
        panels: what it shows, one entry per run, artifact or chart.
        lead: one sentence that explains it.
        reasons: why it shows nothing for a run, with `code` between backticks.
        data: whatever else its template needs.
    """

    name: str
    link: str
    heading: str | None
    panels: list[Panel]
    lead: str = ""
    reasons: list[Reason] = field(default_factory=list)
    data: Panel = field(default_factory=dict)

    @property
    def notes(self) -> dict[str, list[RunRecord]]:
        """The reasons, each once, with the runs that it applies to."""
        return merged(self.reasons)


def merged(reasons: list[Reason]) -> dict[str, list[RunRecord]]:
    """Texts, each once, with the runs that it applies to."""
    return {text: [run for run, other in reasons if other == text] for _, text in reasons}


def artifact_panels(
    page: Page,
    kind: str,
    needed: tuple[str, ...],
    prepare: Callable[[Page, RunRecord, Path, Arrays], Panel],
    why_none: Callable[[RunRecord], str],
    applies: Callable[[RunRecord], bool] = lambda run: True,
) -> tuple[list[Panel], list[Reason]]:
    """Prepare a panel from each artifact of a kind; an unusable artifact becomes a note on its run.

    Args:
        page: the page.
        kind: `views`, `pairs`, `retrieval` or `tsne`.
        needed: arrays that the artifact must have.
        prepare: makes the panel's data, complete, so that rendering cannot fail on bad arrays.
        why_none: the reason to give for a run without a panel.
        applies: whether such an artifact means anything for a run.
    """
    panels: list[Panel] = []
    reasons: list[Reason] = []
    for run in page.runs:
        before = len(panels)
        for path in run.folder.artifacts(kind) if applies(run) else ():
            arrays = run.load_artifact(path, *needed)
            if arrays is None:
                continue
            try:
                with np.errstate(all="ignore"):
                    panels.append({"run": run, **prepare(page, run, path, arrays)})
            except Exception:  # arrays of any type, shape and value may be in the file
                run.notes.append(f"{names.ARTIFACTS}/{path.name} has arrays of the wrong form and is not shown.")
        if len(panels) == before:
            reasons.append((run, why_none(run)))
    return panels, reasons
