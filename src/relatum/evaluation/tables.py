"""Representations as text: CSV with one row per image, and the two TSV files of the TensorBoard embedding projector."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from relatum.system.files import write_text
from relatum.system.text import csv_path, csv_text, one_line


def write_table(
    path: Path, z: NDArray[np.float32], labels: NDArray[np.int64], files: Sequence[str], classes: Sequence[str]
) -> None:
    """Write `.csv` (file, label, f0, f1, …), or `.tsv` (vectors only) with NAME.metadata.tsv beside it (file, label).

    Args:
        path: output file; its ending decides the format.
        z: (N, d) representations.
        labels: (N,) class numbers, -1 for none.
        files: a name per image; empty where images have none, which are then numbered.
        classes: class names.
    """
    names = [csv_path(file) for file in files] or [str(i) for i in range(len(z))]
    titles = [csv_text(classes[i]) if 0 <= i < len(classes) else "" for i in labels.tolist()]
    numbers = [[repr(float(f"{value:.9g}")) for value in row] for row in z]  # nine digits give the same float32 again
    if path.suffix == ".csv":
        header = ["file", "label", *(f"f{i}" for i in range(z.shape[1]))]
        rows = [[name, title, *row] for name, title, row in zip(names, titles, numbers, strict=True)]
        write_text(path, _text([header, *rows], ","))
        return
    write_text(path, _text(numbers, "\t"))
    metadata = [["file", "label"], *([name, title] for name, title in zip(names, titles, strict=True))]
    lines = ("\t".join(one_line(cell).replace("\t", "\\t") for cell in row) for row in metadata)  # it knows no quotes
    write_text(path.with_suffix(".metadata.tsv"), "".join(f"{line}\n" for line in lines))


def _text(rows: Sequence[Sequence[str]], separator: str) -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=separator, lineterminator="\n").writerows(rows)
    return text.getvalue()
