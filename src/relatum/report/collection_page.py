"""The page of a collection (`relatum explore`): a map of the images, albums, near-duplicates and outliers. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relatum.collection.groups import date_groups, day, largest_groups
from relatum.report.formatting import clean
from relatum.report.rendering import render_page
from relatum.report.thumbnails import Atlas
from relatum.system.files import write_text
from relatum.version import __version__

if TYPE_CHECKING:
    from relatum.collection.overview import Overview

SCRIPTS = ("collection.js",)
_UNREADABLE_SHOWN = 200


def write_collection_page(out: Path, name: str, overview: Overview, images: NDArray[np.uint8]) -> Path:
    """Write one self-contained HTML page.

    Args:
        out: the file to write.
        name: the title, usually the name of the folder.
        overview: what the page shows.
        images: (N, S, S, 3) thumbnails of its images.
    """
    atlas = Atlas()
    tiles = atlas.add(images)
    albums = [members for members in overview.clusters if members]
    album_of = {i: f"album {number}" for number, members in enumerate(albums, 1) for i in members}
    data = {
        "files": [clean(file) for file in overview.files],
        "dates": [day(time) for time in overview.times],
        "sizes": overview.sizes.tolist(),
        "maps": {method: _unit_square(xy) for method, xy in overview.maps.items()},
        "groups": {
            "album": _groups([album_of.get(i, "no album") for i in range(len(overview.files))]),
            "folder": _groups(overview.folders),
            "date": _groups(date_groups(overview.times)),
        },
        "neighbours": overview.neighbours.tolist(),
        "albums": albums,
        "duplicates": [{"members": list(group.members), "exact": group.exact} for group in overview.duplicates],
        "outliers": overview.outliers,
        "tiles": tiles,
        "atlas": atlas.encode(),
    }
    copies = sum(len(group.members) - 1 for group in overview.duplicates)
    page = render_page(
        "collection.html",
        scripts=SCRIPTS,
        styles=("page.css", "collection.css"),
        data=data,
        version=__version__,
        name=name,
        total=overview.total,
        shown=len(overview.files),
        albums=len(albums),
        groups=len(overview.duplicates),
        copies=copies,
        skipped=len(overview.skipped),
        unreadable=[(clean(item.path), item.reason) for item in overview.skipped[:_UNREADABLE_SHOWN]],
    )
    write_text(out, page)
    return out


def _unit_square(xy: NDArray[np.float32]) -> list[list[float]]:
    """Positions in [0, 1] on both axes: the map fills its frame, and only nearness has a meaning."""
    low, high = xy.min(axis=0), xy.max(axis=0)
    centred = (xy - (low + high) / 2) / np.maximum(high - low, 1e-9) + 0.5
    return [[round(float(x), 4), round(float(y), 4)] for x, y in centred]


def _groups(labels: Sequence[str]) -> dict[str, Any]:
    """The largest groups by name, and the group number of each image; small groups are merged into the last one."""
    names = largest_groups(labels)
    number = {name: i for i, name in enumerate(names)}
    return {"names": [clean(name) for name in names], "of": [number.get(label, len(names) - 1) for label in labels]}
