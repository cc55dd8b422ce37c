"""Result types of the collection commands, and their output as CSV, JSON, or one file name per line."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from relatum.errors import InputError
from relatum.system.files import write_json, write_text
from relatum.system.text import csv_path, one_line

ENDINGS = (".csv", ".json", ".txt")


@dataclass(frozen=True)
class DuplicateGroup:
    """Files that show the same image: the one with the most pixels first, then the one with the most bytes.

    Attributes:
        files: paths relative to the folder.
        exact: whether the files have the same bytes.
        difference: between thumbnails, 0 for identical ones.
    """

    files: tuple[str, ...]
    exact: bool
    difference: float


@dataclass(frozen=True)
class Outlier:
    """An unusual image.

    Attributes:
        file: path relative to the folder.
        rank: from 1.
        score: ordinary images are around 0.
        same: other files with the same thumbnail.
    """

    file: str
    rank: int
    score: float
    same: tuple[str, ...] = ()


@dataclass(frozen=True)
class Album:
    """A cluster of images: its title image, and all its files from the centre outwards."""

    title: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class Selected:
    """An image of a diverse subset: its rank from 1, and the distance of the farthest image from the subset so far."""

    file: str
    rank: int
    radius: float


Row = DuplicateGroup | Outlier | Album | Selected


def check_target(path: Path | None) -> Path | None:
    """Refuse an output file with another ending before any work is done."""
    if path is not None and path.suffix.lower() not in ENDINGS:
        raise InputError(f"{path} must end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}.")
    return path


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write results as CSV (one line per image), JSON, or text (one file name per line)."""
    kind = path.suffix.lower()
    if kind == ".json":
        write_json(path, [asdict(row) for row in rows])
        return
    lines = list(flat_rows(rows))
    if kind == ".txt":
        # A line end in a file name would start a second name, which could be that of any file.
        write_text(path, "".join(f"{one_line(line['file'])}\n" for line in lines))
        return
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]) if lines else ["file"], lineterminator="\n")
    writer.writeheader()
    writer.writerows({**line, "file": csv_path(line["file"])} for line in lines)
    write_text(path, text.getvalue())


def flat_rows(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One flat row per image; groups and albums are numbered from 1."""
    flat: list[dict[str, Any]] = []
    for number, row in enumerate(rows, 1):
        if isinstance(row, DuplicateGroup):
            more = {"exact": row.exact, "difference": round(row.difference, 4)}
            flat += [{"group": number, "file": file, **more} for file in row.files]
        elif isinstance(row, Album):
            flat += [{"cluster": number, "file": file, "title": file == row.title} for file in row.files]
        elif isinstance(row, Outlier):
            flat += [{"file": file, "rank": row.rank, "score": row.score} for file in (row.file, *row.same)]
        else:
            flat.append(asdict(row))
    return flat
