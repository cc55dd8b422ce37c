"""The views that training used, and the pairs that the relation head scores with the most and least confidence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from relatum.report.page import Page, Panel, Section, artifact_panels
from relatum.report.thumbnails import thumbnail
from relatum.runs import artifacts, names
from relatum.runs.reading import RunRecord

MAX_VIEWS = 32  # per image: the paper's K
MAX_ROWS, MAX_PAIRS = 50, 50  # images, and pairs per group: relatum writes 8 and 6
FEW_VIEWS = 8  # up to which they are shown large


def views(page: Page) -> Section:
    """The section of views."""
    needed = ("views", "originals")
    panels, reasons = artifact_panels(page, names.VIEWS, needed, _view_panel, _why_no_views, _trained)
    lead = "Each row shows one image, on the left as it is, then its augmented views."
    return Section("views", "Views", "Views used for training", panels, lead, reasons)


def _trained(run: RunRecord) -> bool:
    return run.method != "random"


def _why_no_views(run: RunRecord) -> str:
    if not _trained(run):
        return "No views: random weights were not trained."
    return "No views: the artifact `views` is missing or cannot be read."


def _view_panel(page: Page, run: RunRecord, path: Path, arrays: artifacts.Arrays) -> Panel:
    all_views, originals, texts = arrays["views"], arrays["originals"], arrays.get("names", np.zeros(0))
    if all_views.ndim != 5 or not all_views.size:
        raise ValueError("views are (n, K, S, S, 3)")
    rows = []
    for i, (original, shown) in enumerate(zip(originals[:MAX_ROWS], all_views[:, :MAX_VIEWS], strict=False)):
        name = str(texts[i]) if len(texts) > i else f"image {i + 1}"
        tiles = [thumbnail(view, "", 104 if len(shown) <= FEW_VIEWS else 52) for view in shown]
        rows.append({"name": name, "original": thumbnail(original, f"{name}, original", 108), "views": tiles})
    return {
        "rows": rows,
        "k": all_views.shape[1],
        "max": MAX_VIEWS,
        "few": FEW_VIEWS,
        "policy": run.setting("views.policy"),
    }


# ------------------------------------------------------------------------------------------------------------- pairs

GROUPS = {
    "sure-same": ("Confident positives", "Two views of one image, with the highest scores."),
    "sure-different": ("Confident negatives", "Views of two images, with the lowest scores."),
    "confusing-same": ("Hard positives", "Two views of one image, with the lowest scores."),
    "confusing-different": ("Hard negatives", "Views of two images, with the highest scores."),
}


def pairs(page: Page) -> Section:
    """The section of pairs."""
    needed = ("left", "right", "scores", "targets")
    panels, reasons = artifact_panels(page, names.PAIRS, needed, _pair_panel, _why_no_pairs)
    lead = "The relation head scores a pair of views between 0 (views of two images) and 1 (views of one image)."
    return Section("pairs", "Pairs", "Relation scores of pairs", panels, lead, reasons)


def _why_no_pairs(run: RunRecord) -> str:
    if run.method not in ("", "relational"):
        return "No pairs: only relational reasoning has a relation head."
    return "No pairs: the artifact `pairs`, which is written when training ends, is missing or cannot be read."


def _pair_panel(page: Page, run: RunRecord, path: Path, arrays: artifacts.Arrays) -> Panel:
    scores, group = arrays["scores"].astype(float), arrays.get("group")
    index = np.arange(len(scores))
    if group is None or len(group) != len(scores):
        index, group = artifacts.select_pairs(scores, arrays["targets"])
    groups = []
    for number, kind in enumerate(artifacts.PAIR_GROUPS):
        heading, text = GROUPS[kind]
        members = [_pair(arrays, int(i), float(scores[i]), kind) for i in index[group == number][:MAX_PAIRS]]
        groups.append({"heading": heading, "text": text, "pairs": members})
    counts = arrays.get("histogram")
    histogram = (
        _histogram(counts)
        if counts is not None and counts.shape == (2, artifacts.HISTOGRAM_BINS) and counts.sum()
        else None
    )
    return {"groups": [group for group in groups if group["pairs"]], "histogram": histogram}


def _pair(arrays: artifacts.Arrays, i: int, score: float, kind: str) -> Panel:
    images = []
    for side in ("left", "right"):
        texts = arrays.get(f"{side}_names", ())
        name = str(texts[i]) if len(texts) > i else ""
        images.append(thumbnail(arrays[side][i], f"view of {name}" if name else "view", 64, name))
    return {"images": images, "score": f"{score:.3f}", "correct": (score > 0.5) == kind.endswith("same")}


def _histogram(counts: NDArray[np.int64]) -> Panel:
    """The distribution of all scores: negatives and positives, each as fractions of their number."""
    fractions = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    heights = fractions / (float(fractions.max()) or 1.0)
    half = counts.shape[1] // 2
    return {
        "bars": [(kind, i, float(heights[kind, i])) for kind in (0, 1) for i in range(counts.shape[1])],
        "bins": counts.shape[1],
        "negatives": f"{counts[0].sum():,}",
        "positives": f"{counts[1].sum():,}",
        "correct": [f"{100 * part.sum():.1f} %" for part in (fractions[0, :half], fractions[1, half:])],
    }
