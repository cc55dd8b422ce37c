"""Small pictures: thumbnails for the report, and maps of points as PNG and SVG in colours that all eyes tell apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from relatum.system.files import write_atomically

# Paul Tol's "muted" scheme: ten colours that stay apart in all common kinds of colour blindness.
_MUTED = ("#332288", "#88CCEE", "#117733", "#DDCC77", "#CC6677", "#AA4499", "#44AA99", "#999933", "#882255", "#777777")
_TWO = ("#0077BB", "#EE7733")  # Tol's "vibrant" blue and orange
_MOST_LABELS = 20  # class names that fit on a map


def thumbnails(images: NDArray[np.uint8], most: int = 64) -> NDArray[np.uint8]:
    """Images (N, S, S, 3) reduced to at most `most` pixels a side; smaller ones are kept as they are."""
    side = images.shape[1]
    if side <= most:
        return np.ascontiguousarray(images)
    small = np.empty((len(images), most, most, 3), np.uint8)
    for i, image in enumerate(images):
        small[i] = np.asarray(Image.fromarray(np.ascontiguousarray(image)).resize((most, most), Image.Resampling.BOX))
    return small


def save_map(
    stem: Path,
    xy: NDArray[np.floating],
    labels: NDArray[np.int64] | None,
    names: Sequence[str],
    title: str,
) -> list[Path]:
    """Draw points coloured by label, as STEM.png and STEM.svg (points as pixels: 10,000 circles choke viewers)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 8))
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    size = float(np.clip(60_000 / len(xy), 6, 40))
    colours = np.full(len(xy), "#332288") if labels is None else np.asarray(palette(len(names)))[labels]
    axes.scatter(xy[:, 0], xy[:, 1], s=size, c=colours, alpha=0.75, linewidths=0, rasterized=True)
    if labels is not None and len(names) <= _MOST_LABELS:
        _name_groups(axes, xy, labels, names)
    axes.set_title(title)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_aspect("equal")
    axes.spines[:].set_visible(False)
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg")]
    write_atomically(paths[0], lambda path: figure.savefig(path, format="png", dpi=150, bbox_inches="tight"))
    dated = {"Date": None}  # the same map is the same file
    write_atomically(paths[1], lambda path: figure.savefig(path, format="svg", bbox_inches="tight", metadata=dated))
    return paths


def palette(number: int) -> list[str]:
    """As many colours: well-known schemes for two and up to ten, hues in three lightnesses beyond."""
    if number <= 2:
        return list(_TWO)
    if number <= len(_MUTED):
        return list(_MUTED)
    from matplotlib.colors import hsv_to_rgb, to_hex

    hues = np.arange(number) / number
    values = np.resize([0.9, 0.65, 0.4], number)
    return [str(to_hex(hsv_to_rgb((h, 0.75, v)))) for h, v in zip(hues, values, strict=True)]  # type: ignore[arg-type]


def _name_groups(axes: object, xy: NDArray[np.floating], labels: NDArray[np.int64], names: Sequence[str]) -> None:
    """Each class's name at its median point and in the legend: colour is never the only sign."""
    from matplotlib.lines import Line2D

    colours = palette(len(names))
    box = {"boxstyle": "round,pad=0.2", "facecolor": "white", "alpha": 0.8, "linewidth": 0}
    for number, name in enumerate(names):
        mine = xy[labels == number]
        if len(mine):
            x, y = np.median(mine, axis=0)
            axes.text(x, y, name, ha="center", va="center", fontsize=10, bbox=box)  # type: ignore[attr-defined]
    handles = [Line2D([], [], marker="o", linestyle="", color=colours[i], label=n) for i, n in enumerate(names)]
    axes.legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)  # type: ignore[attr-defined]
