"""What the learner saw and what it was asked: sheets of views, and pairs that are clear or confusing to its head."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from relatum.report.images import Images, data_uri
from relatum.report.markup import Child, Html, el, name_of
from relatum.report.page import Page, filled, side_by_side
from relatum.report.runfolder import Run
from relatum.runs import artifacts

MOST_VIEWS = 32  # of one image: the paper's K; a sheet of more says no more


def picture(image: Images, alt: str, size: int = 48, **attributes: str | None) -> Html:
    """A thumbnail; images of few pixels are shown as squares of colour, not blurred."""
    small = max(image.shape[:2]) < size
    class_ = " ".join(filter(None, ("pixels" if small else "", attributes.pop("class_", "") or "")))
    return el("img", src=data_uri(image), alt=alt, width=size, height=size, class_=class_ or None, **attributes)


def views(page: Page) -> Html | None:
    """The section of views."""
    panels, words = [], []
    for run in page.runs:
        # Random weights have seen no image, whatever lies in the folder.
        files = run.artifact_files("views")[:1] if run.setting("method") != "random" else []
        made = [run.show(path, ("views", "originals"), partial(_view_sheet, page, run)) for path in files]
        panels += [panel for panel in made if panel is not None]
        if not any(made):
            words.append((run, _why_no_views(run)))
    lead = "Each row is one image: on the left as it is, then as the learner saw it."
    return filled(page, "views", "What the learner saw", words, side_by_side(panels), lead)


def _why_no_views(run: Run) -> str:
    if run.setting("method") == "random":
        return "No views: random weights have seen no image."
    return "No sheet of views: this run kept none (artifacts/views.npz is missing or cannot be read)."


def _view_sheet(page: Page, run: Run, arrays: artifacts.Arrays) -> Html:
    made, originals, names = arrays["views"], arrays["originals"], arrays.get("names", np.zeros(0))
    if made.ndim != 5 or not made.size:
        raise ValueError("views are (n, K, S, S, 3)")
    rows = []
    for i in range(min(len(made), len(originals))):
        name = str(names[i]) if len(names) > i else f"image {i + 1}"
        shown = made[i][:MOST_VIEWS]
        sheet = [picture(view, "", 104 if len(shown) <= 8 else 52) for view in shown]
        first = picture(originals[i], f"{name}, as it is", 108, class_="original")
        few = {"class_": "tiles few", "style": f"--n:{len(shown)}"} if len(shown) <= 8 else {"class_": "tiles"}
        group = el("div", sheet, role="img", aria_label=f"{len(shown)} view{'s' * (len(shown) > 1)} of {name}", **few)
        subject = el("figure", first, el("figcaption", name_of(name)), class_="subject")
        rows.append(el("div", subject, group, class_="view-row"))
    k = made.shape[1]
    more = f"K = {k}" + (f", the first {MOST_VIEWS} shown" if k > MOST_VIEWS else "")
    policy = run.setting("views.policy")
    heading = page.run_heading(run, more, f", chain “{policy}”" if policy else None)
    return el("article", heading, rows, class_="panel")


# ------------------------------------------------------------------------------------------------------------- pairs

TITLES = {
    "sure-same": ("Surest: the same", "Two views of one image, with the highest scores."),
    "sure-different": ("Surest: different", "Views of two images, with the lowest scores."),
    "confusing-same": ("Most confusing: the same", "Two views of one image, with the lowest scores."),
    "confusing-different": ("Most confusing: different", "Views of two images, with the highest scores."),
}


def pairs(page: Page) -> Html | None:
    """The section of pairs."""
    panels, words = [], []
    for run in page.runs:
        files, needed = run.artifact_files("pairs")[:1], ("left", "right", "scores", "targets")
        made = [run.show(path, needed, partial(_pair_panel, page, run)) for path in files]
        panels += [panel for panel in made if panel is not None]
        if not any(made):
            words.append((run, _why_no_pairs(run)))
    lead = "The relation head scores a pair of views from 0 (two images) to 1 (one image)."
    return filled(page, "pairs", "What it was asked", words, side_by_side(panels), lead)


def _why_no_pairs(run: Run) -> str:
    method = run.setting("method")
    if method is not None and method != "relational":
        return "No pairs: only relational reasoning has a head that scores them."
    return "No pairs: artifacts/pairs.npz, which is written when training finishes, is missing or cannot be read."


def _pair_panel(page: Page, run: Run, arrays: artifacts.Arrays) -> Html:
    scores, targets = arrays["scores"].astype(float), arrays["targets"]
    group = arrays.get("group")
    if group is None or len(group) != len(scores):
        chosen, group = artifacts.select_pairs(scores, targets)
        arrays = {
            k: v[chosen] if k in ("left", "right", "left_names", "right_names") and len(v) else v
            for k, v in arrays.items()
        }
        scores = scores[chosen]
    blocks: list[Child] = []
    for number, key in enumerate(artifacts.PAIR_GROUPS):
        title, words = TITLES[key]
        there = np.flatnonzero(group == number)
        if len(there):
            items = [_pair(arrays, int(i), float(scores[i]), key) for i in there]
            blocks.append(
                el(
                    "div",
                    el("h4", title),
                    el("p", words, class_="small"),
                    el("ul", items, class_="pairs"),
                    class_="pair-group",
                )
            )
    histogram = arrays.get("histogram")
    spread = _histogram(histogram) if histogram is not None and histogram.ndim == 2 and histogram.sum() else None
    return el("article", page.run_heading(run), el("div", blocks, class_="pair-groups"), spread, class_="panel")


def _pair(arrays: artifacts.Arrays, i: int, score: float, key: str) -> Html:
    names = [str(arrays[side][i]) if len(arrays.get(side, ())) > i else "" for side in ("left_names", "right_names")]
    alts = [f"view of {name}" if name else "view" for name in names]
    both = [
        picture(arrays[side][i], alt, 64, title=name or None)
        for side, alt, name in zip(("left", "right"), alts, names, strict=True)
    ]
    right = (score > 0.5) == key.endswith("same")
    label = el("b", f"{score:.3f}")
    return el("li", el("span", both, class_="pair hit" if right else "pair miss"), label)


def _histogram(counts: NDArray[np.int64]) -> Html:
    """How the scores of all pairs spread: negatives and positives, each as a share of its own kind."""
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    top, width, height = float(shares.max()) or 1.0, 420, 110
    step = width / counts.shape[1]
    bars = []
    for kind, class_ in ((0, "negative"), (1, "positive")):
        for i, share in enumerate(shares[kind]):
            tall = float(share) / top * (height - 24)
            x, y = i * step + 1 + kind * step / 2, height - 18 - tall
            bars.append(
                el("rect", class_=class_, x=f"{x:.1f}", y=f"{y:.1f}", width=f"{step / 2 - 1:.1f}", height=f"{tall:.1f}")
            )
    axis = [
        el("text", t, x=x, y=height - 3, class_="tick", text_anchor=a)
        for t, x, a in (("0", 2, "start"), ("0.5", width / 2, "middle"), ("1", width - 2, "end"))
    ]
    half = counts.shape[1] // 2
    sure = [100 * float(shares[0, :half].sum()), 100 * float(shares[1, half:].sum())]
    words = (
        f"{counts[0].sum():,} pairs of two images, {sure[0]:.1f} % scored below ½; "
        f"{counts[1].sum():,} pairs of one image, {sure[1]:.1f} % above."
    )
    svg = el(
        "svg",
        bars,
        axis,
        viewBox=f"0 0 {width} {height}",
        role="img",
        aria_label=f"Histogram of relation scores: {words}",
    )
    keys = el(
        "ul",
        el("li", el("i", style="--c:var(--miss)"), "two images"),
        el("li", el("i", style="--c:var(--hit)"), "one image"),
        class_="keys",
    )
    return el("figure", el("h4", "All scores"), svg, keys, el("figcaption", words), class_="histogram")
