"""The embedding map: what page.js needs to draw thousands of points and to answer a hover within a frame."""

from __future__ import annotations

import base64
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relatum.report.markup import Html, clean, el
from relatum.report.page import Page, filled, side_by_side
from relatum.report.runfolder import Run
from relatum.report.words import count, data_title
from relatum.runs import artifacts

MOST_POINTS = 20_000  # of one map: beyond, a fair part of them; keeps the page within its 15 MB
NONE = 0xFFFFFFFF


def embedding_map(page: Page) -> Html | None:
    """The section of maps."""
    panels, words = [], []
    for run in page.runs:
        files = run.artifact_files("tsne")
        made = [run.show(path, ("xy", "thumbs"), partial(_panel, page, run, path)) for path in files]
        panels += [panel for panel in made if panel is not None]
        if not any(made):
            words.append((run, "No map yet: `relatum evaluate tsne RUN --data DATA` makes one."))
    lead = "Every point is an image; points are near where the representations are alike (t-SNE)."
    return filled(page, "map", "What it learned", words, side_by_side(panels, wide=True), lead)


def _map_data(page: Page, run: Run, stem: str, arrays: artifacts.Arrays) -> dict[str, Any]:
    xy, thumbs = np.asarray(arrays["xy"], np.float64), arrays["thumbs"]
    if xy.ndim != 2 or xy.shape[1] != 2 or thumbs.ndim != 4 or thumbs.dtype != np.uint8 or len(thumbs) != len(xy):
        raise ValueError("a map is (N, 2) positions and (N, S, S, 3) thumbnails")
    kept = np.flatnonzero(np.isfinite(xy).all(axis=1))
    if len(kept) > MOST_POINTS:
        kept = kept[np.linspace(0, len(kept) - 1, MOST_POINTS).round().astype(int)]
    low, high = xy[kept].min(axis=0), xy[kept].max(axis=0)
    span = float((high - low).max()) or 1.0
    centred = (xy[kept] - (low + high) / 2) / span + 0.5
    labels, classes = _groups(arrays.get("labels"), arrays.get("classes"), kept, len(xy))
    supers, super_names = _groups(
        arrays.get("super", arrays.get("super_labels")), arrays.get("super_names"), kept, len(xy)
    )
    names = arrays.get("names", np.zeros(0))
    return {
        "title": f"{run.name}: {stem}",
        "stem": stem,
        "n": len(kept),
        "of": len(xy),
        "xy": _packed((centred * 65535).round(), np.uint16),
        "tiles": _packed(page.atlas.add(thumbs[kept]), np.uint32),
        "numbers": _packed(kept, np.uint32),
        "labels": _packed(labels, np.uint32),
        "classes": classes,
        "super": _packed(supers, np.uint32) if super_names else None,
        "superNames": super_names,
        "neighbours": _packed(*_neighbours(arrays.get("neighbours"), kept, len(xy))),
        "names": [clean(names[i]) for i in kept] if len(names) == len(xy) else None,
    }


def _groups(
    numbers: NDArray[Any] | None, names: NDArray[Any] | None, kept: NDArray[Any], n: int
) -> tuple[NDArray[Any], list[str]]:
    """Group numbers and names; groups given as texts are numbered, missing ones are `NONE`."""
    nothing: tuple[NDArray[Any], list[str]] = (np.full(len(kept), NONE), [])
    if numbers is None or numbers.shape != (n,):
        return nothing
    if numbers.dtype.kind == "U":
        found, inverse = np.unique(numbers, return_inverse=True)
        return inverse[kept], [clean(name) for name in found]
    numbers = numbers[kept]
    if not (numbers >= 0).any():
        return nothing
    size = int(numbers.max()) + 1
    texts = [clean(name) for name in names] if names is not None else []
    texts += [str(i) for i in range(len(texts), size)]
    return np.where(numbers >= 0, numbers, NONE), texts


def _neighbours(found: NDArray[Any] | None, kept: NDArray[Any], n: int) -> tuple[NDArray[Any], type]:
    """Neighbours as places among the kept points; `NONE` where one is not shown."""
    if found is None or found.ndim != 2 or len(found) != n:
        return np.zeros(0), np.uint32
    place = np.full(n + 1, NONE)
    place[kept] = np.arange(len(kept))
    found = np.where((found >= 0) & (found < n), found, n)
    return place[found[kept]], np.uint32


def _packed(values: Any, kind: type) -> str:
    """Numbers as base64 of little-endian integers: a tenth of the time and half of the size of JSON."""
    array = np.ascontiguousarray(np.asarray(values), dtype=np.dtype(kind).newbyteorder("<"))
    return base64.b64encode(array.tobytes()).decode("ascii")


def _panel(page: Page, run: Run, path: Path, arrays: artifacts.Arrays) -> Html:
    data = _map_data(page, run, path.stem.removeprefix("tsne-"), arrays)
    number = len(page.data["maps"])
    page.data["maps"].append(data)
    shown = count(data["n"]) + (f" of {count(data['of'])}" if data["of"] != data["n"] else "")
    heading = page.run_heading(run, el("bdi", data_title(data["stem"])), f", {shown} images")
    tools = [
        el("button", sign, type="button", aria_label=label, title=label, data_do=do)
        for sign, label, do in (("+", "Zoom in", "in"), ("−", "Zoom out", "out"), ("⤢", "Show all", "all"))
    ]
    help_id = f"map-help-{number}"
    stage = el(
        "div",
        el("canvas", class_="dots", aria_hidden="true"),
        el(
            "canvas",
            class_="marks",
            tabindex="0",
            role="application",
            aria_label=f"Map of {shown} images",
            aria_describedby=help_id,
        ),
        el("div", tools, class_="map-tools"),
        el(
            "div",
            el("canvas", width=96, height=96, aria_hidden="true"),
            el("p"),
            el("p", class_="small"),
            class_="map-card",
            hidden=True,
        ),
        class_="map-stage",
    )
    options = [el("option", "class", value="class")] if data["classes"] else []
    options += [el("option", "super-category", value="super")] if data["superNames"] else []
    options += [el("option", "nothing", value="none")]
    shows = [el("option", "points", value="dots"), el("option", "images", value="images")]
    controls = [
        el("label", "Colour by ", el("select", options, name="colour")),
        # Points of one colour say little: without classes the images themselves are shown first.
        el("label", "Show ", el("select", shows if data["classes"] else shows[::-1], name="show")),
        el(
            "label",
            "Find ",
            el(
                "input",
                type="search",
                name="find",
                placeholder="class or file" if data["classes"] else "file",
                autocomplete="off",
            ),
        ),
    ]
    side = el(
        "div",
        el("div", controls, class_="map-controls"),
        el("ul", class_="legend", aria_label="Groups: choose some to see only them"),
        el(
            "div",
            el("p", "Choose a point to see its nearest images.", class_="small"),
            class_="chosen",
            aria_live="polite",
        ),
        class_="map-side",
    )
    words = (
        "Drag to move; click the map, then scroll to zoom. With the keyboard: arrows go from image to image, Enter "
        "chooses, + − 0 zoom, Shift and arrows move, Escape leaves."
    )
    help_text = el("p", words, id=help_id, class_="small map-help")
    unlabelled = (
        None
        if data["classes"]
        else el("p", "These images have no labels: no colours of classes, file names instead.", class_="note")
    )
    without = el("noscript", el("p", "The map needs JavaScript.", class_="note"))
    return el(
        "article",
        without,
        heading,
        unlabelled,
        el("div", stage, side, class_="map-box"),
        help_text,
        class_="panel map",
        data_map=str(number),
    )
