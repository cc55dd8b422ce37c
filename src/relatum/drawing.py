"""Colours, thumbnails, maps of points and contact sheets, used by several packages. No torch here.

All palettes can be told apart with the common kinds of colour blindness, and colour is never the only sign.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from relatum.system.files import write_atomically
from relatum.system.text import printable

# Paul Tol's "muted" scheme.
_MUTED = ("#332288", "#88CCEE", "#117733", "#DDCC77", "#CC6677", "#AA4499", "#44AA99", "#999933", "#882255", "#777777")
_TWO = ("#0077BB", "#EE7733")  # Tol's "vibrant" blue and orange
GREY = "#6E6E6E"
METHODS = {  # colour (Okabe & Ito 2008) and marker of each method
    "relational": ("#D55E00", "o"),
    "simclr": ("#0072B2", "s"),
    "rotation": ("#009E73", "^"),
    "deepcluster": ("#CC79A7", "D"),
    "deepinfomax": ("#E69F00", "v"),
    "supervised": ("#595959", "P"),
    "random": ("#BBBBBB", "x"),
    # Methods after the paper: Tol's "muted" scheme, and other markers.
    "moco": ("#88CCEE", "s"),
    "byol": ("#332288", "p"),
    "simsiam": ("#AA4499", "h"),
    "barlow": ("#117733", "<"),
    "vicreg": ("#44AA99", ">"),
    "swav": ("#882255", "d"),
    "dino": ("#999933", "*"),
    "emp": ("#CC6677", "X"),
}
_MAX_LABELS = 20  # class names that fit on a map
_TILE, _GAP, _LINE, _FRAME = 128, 8, 13, 4  # pixels of a contact sheet
_MARK = "#D55E00"


def thumbnails(images: NDArray[np.uint8], max_side: int = 64) -> NDArray[np.uint8]:
    """Images (N, S, S, 3) reduced to at most `max_side` pixels; smaller ones are returned as they are."""
    if images.shape[1] <= max_side:
        return np.ascontiguousarray(images)
    size = (max_side, max_side)
    small = np.empty((len(images), *size, 3), np.uint8)
    for i, image in enumerate(images):
        small[i] = np.asarray(Image.fromarray(np.ascontiguousarray(image)).resize(size, Image.Resampling.BOX))
    return small


def save_map(
    stem: Path,
    xy: NDArray[np.floating],
    labels: NDArray[np.int64] | None,
    names: Sequence[str],
    title: str,
) -> list[Path]:
    """Draw points coloured by label, as STEM.png and STEM.svg.

    Points are pixels in the SVG too, since viewers are slow with 10,000 circles. The same map gives the same file.

    Args:
        stem: path without extension.
        xy: positions, (N, 2).
        labels: class numbers, (N,).
        names: class names.
        title: of the figure.
    """
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # the user's matplotlibrc may ask for LaTeX, or another size
        return _save_map(stem, xy, labels, names, title)


def _save_map(
    stem: Path, xy: NDArray[np.floating], labels: NDArray[np.int64] | None, names: Sequence[str], title: str
) -> list[Path]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 8))
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    size = float(np.clip(60_000 / len(xy), 6, 40))
    colours = np.full(len(xy), "#332288") if labels is None else np.asarray(palette(len(names)))[labels]
    axes.scatter(xy[:, 0], xy[:, 1], s=size, c=colours, alpha=0.75, linewidths=0, rasterized=True)
    if labels is not None and len(names) <= _MAX_LABELS:
        _name_groups(axes, xy, labels, names)
    axes.set_title(printable(title), parse_math=False)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_aspect("equal")
    axes.spines[:].set_visible(False)
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg")]
    write_atomically(paths[0], lambda path: figure.savefig(path, format="png", dpi=150, bbox_inches="tight"))
    undated = {"Date": None}
    write_atomically(paths[1], lambda path: figure.savefig(path, format="svg", bbox_inches="tight", metadata=undated))
    return paths


def palette(number: int) -> list[str]:
    """At least `number` colours: fixed schemes for two and for up to ten, hues in three lightnesses beyond."""
    if number <= 2:
        return list(_TWO)
    if number <= len(_MUTED):
        return list(_MUTED)
    from matplotlib.colors import hsv_to_rgb, to_hex

    hues = np.arange(number) / number
    values = np.resize([0.9, 0.65, 0.4], number)
    return [str(to_hex(hsv_to_rgb((h, 0.75, v)))) for h, v in zip(hues, values, strict=True)]  # type: ignore[arg-type]


def _name_groups(axes: object, xy: NDArray[np.floating], labels: NDArray[np.int64], names: Sequence[str]) -> None:
    """Write each class's name at its median point and in the legend, as it is: `$` starts no formula."""
    from matplotlib.lines import Line2D

    names = [printable(name) for name in names]

    colours = palette(len(names))
    box = {"boxstyle": "round,pad=0.2", "facecolor": "white", "alpha": 0.8, "linewidth": 0}
    for number, name in enumerate(names):
        members = xy[labels == number]
        if len(members):
            x, y = np.median(members, axis=0)
            axes.text(x, y, name, ha="center", va="center", fontsize=10, bbox=box, parse_math=False)  # type: ignore[attr-defined]
    handles = [Line2D([], [], marker="o", linestyle="", color=colour) for colour in colours[: len(names)]]
    legend = axes.legend(handles, names, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)  # type: ignore[attr-defined]
    for text in legend.get_texts():
        text.set_parse_math(False)


@dataclass(frozen=True)
class Tile:
    """An image of a contact sheet with the two lines below it; a marked one has a frame."""

    image: NDArray[np.uint8]
    name: str
    note: str
    marked: bool = False


def contact_sheet(rows: Sequence[Sequence[Tile]]) -> Image.Image:
    """Rows of images, each with its file name and a note: usually a query, which is marked, and its nearest images."""
    step, height = _TILE + _GAP, _TILE + 2 * _LINE + 2 * _GAP
    columns = max(len(row) for row in rows)
    sheet = Image.new("RGB", (columns * step + 3 * _GAP, len(rows) * height + _GAP), "white")
    draw = ImageDraw.Draw(sheet)
    for number, row in enumerate(rows):
        y = _GAP + number * height
        x = _GAP
        for tile in row:
            if tile.marked:
                box = (x - _FRAME, y - _FRAME, x + _TILE + _FRAME - 1, y + _TILE + _FRAME - 1)
                draw.rectangle(box, outline=_MARK, width=_FRAME)
            sheet.paste(_resized(tile.image), (x, y))
            for line, text in enumerate((tile.name, tile.note)):
                draw.text((x, y + _TILE + _FRAME + line * _LINE), _fitting(draw, text), fill="black")
            x += step + (2 * _GAP if tile.marked else 0)
    return sheet


def _resized(image: NDArray[np.uint8]) -> Image.Image:
    return Image.fromarray(np.ascontiguousarray(image)).resize((_TILE, _TILE), Image.Resampling.BICUBIC)


def _fitting(draw: ImageDraw.ImageDraw, text: str) -> str:
    """A text shortened to the width of a tile: the middle is left out, since file names differ at their ends."""
    text = " ".join(printable(text).split())
    if draw.textlength(text) <= _TILE:
        return text
    for kept in range(len(text) - 1, 1, -1):
        short = f"{text[: kept // 2]}…{text[len(text) - (kept - kept // 2) :]}"
        if draw.textlength(short) <= _TILE:
            return short
    return "…"


def retrieval_sheet(
    thumbs: NDArray[np.uint8],
    queries: NDArray[np.integer[Any]],
    neighbours: NDArray[np.integer[Any]],
    image_index: NDArray[np.integer[Any]],
    gap: int = 2,
) -> NDArray[np.uint8]:
    """One image: a row per query, the query in a red frame, its nearest images to the right.

    Args:
        thumbs: thumbnails, (N, S, S, 3).
        queries: image numbers, (Q,).
        neighbours: image numbers, (Q, n).
        image_index: the image number of each thumbnail, (N,).
        gap: pixels around each thumbnail.
    """
    position = {int(index): i for i, index in enumerate(image_index)}
    side = thumbs.shape[1]
    step = side + 2 * gap
    sheet = np.full((len(queries) * step, (neighbours.shape[1] + 1) * step + 3 * gap, 3), 255, np.uint8)
    for row, (query, others) in enumerate(zip(queries, neighbours, strict=True)):
        sheet[row * step : row * step + step - 1, : step - 1] = (213, 94, 0)
        for column, index in enumerate((query, *others)):
            top, left = row * step + gap, column * step + gap + 3 * gap * (column > 0)
            sheet[top : top + side - 1, left : left + side - 1] = thumbs[position[int(index)]][:-1, :-1]
    return sheet
