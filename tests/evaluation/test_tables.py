from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from relatum.evaluation.tables import write_table

Z = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
LABELS = np.array([0, 1, -1])


def test_csv_keeps_every_bit(tmp_path: Path) -> None:
    write_table(tmp_path / "z.csv", Z, LABELS, ["a,b.png", "c.png", "d.png"], ["cat", "dog"])
    with (tmp_path / "z.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["file"] for row in rows] == ["a,b.png", "c.png", "d.png"]
    assert [row["label"] for row in rows] == ["cat", "dog", ""]
    np.testing.assert_array_equal(np.array([[row[f"f{i}"] for i in range(4)] for row in rows], np.float32), Z)


def test_the_projector_gets_vectors_and_metadata(tmp_path: Path) -> None:
    write_table(tmp_path / "z.tsv", Z, LABELS, [], [])
    np.testing.assert_array_equal(np.loadtxt(tmp_path / "z.tsv", delimiter="\t", dtype=np.float32), Z)
    assert (tmp_path / "z.metadata.tsv").read_text().splitlines()[:2] == ["file\tlabel", "0\t"]


def test_odd_names_do_not_shift_the_lines_of_the_projector(tmp_path: Path) -> None:
    """It splits at line ends and tabs, and does not know quotes."""
    write_table(tmp_path / "z.tsv", Z, LABELS, ["a\nb.png", "c\td.png", 'e"f.png'], ["cat", "dog"])
    lines = (tmp_path / "z.metadata.tsv").read_text().split("\n")
    assert lines == ["file\tlabel", "a\\nb.png\tcat", "c\\td.png\tdog", 'e"f.png\t', ""]
