"""docs/errors.md shows what people see today: every mistake is made again, and the page is compared."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from scripts import load_script

DOCS = Path(__file__).parents[1] / "docs"


def test_the_page_of_mistakes_is_what_commands_print_now() -> None:
    module = load_script(DOCS / "errors.py")
    expected = module.PAGE.read_text("utf-8").splitlines()
    changes = [line for line in difflib.ndiff(expected, module.page().splitlines()) if line[0] in "+-"]
    assert not changes, "run `python docs/errors.py`\n" + "\n".join(changes)
    rows = [line for line in expected if line.startswith("| `relatum ")]
    assert len(rows) >= 60
    assert len(set(rows)) == len(rows)
    for row in rows:
        command, code, text = (cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:4])
        assert code in ("0", "1", "2"), command
        assert code == "0" or text.startswith("error: "), command
        assert text.count("<br>") <= (1 if code != "0" else 12), command
        assert "Traceback" not in text
        assert "unexpected" not in text, command
