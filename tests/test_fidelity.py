"""docs/fidelity.md is a table of statements: every row names tests that exist, or says why it has none."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows() -> list[tuple[list[str], list[str]]]:
    """The cells of every row of every table, with those of its table's head."""
    table_rows, head = [], []
    for line in (ROOT / "docs" / "fidelity.md").read_text("utf-8").splitlines():
        if not line.startswith("|"):
            head = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not head:
            head = cells
        elif not set(line) <= set("|- "):
            table_rows.append((head, cells))
    return table_rows


ROWS = rows()
NAMED = [name for _, cells in ROWS for name in TEST.findall(cells[-1])]


def test_there_are_rows() -> None:
    assert len(ROWS) > 60


@pytest.mark.parametrize(("head", "cells"), ROWS, ids=[cells[0][:60] for _, cells in ROWS])
def test_every_row_is_complete_and_names_a_test_or_a_reason(head: list[str], cells: list[str]) -> None:
    assert head[-1] == "covered by"
    assert len(cells) == len(head)
    assert all(cells)
    coverage = cells[-1]
    reason = re.fullmatch(r"no test: (\w.{15,})", coverage)
    names = [part.strip() for part in coverage.split(",")]
    assert reason or all(TEST.fullmatch(name) for name in names)


@pytest.mark.parametrize("file", sorted({file for file, _ in NAMED}))
def test_every_test_that_is_named_exists(file: str) -> None:
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert {name for at, name in NAMED if at == file} <= defined
