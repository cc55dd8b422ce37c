"""`make docs`: writes docs/reference.md (all commands, all recipe keys) from the code, and checks all links."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

from relatum import config
from relatum.config.methods import METHODS

HERE = Path(__file__).parent
COMMANDS = (
    *("demo", "list", "data get", "data info", "data shard", "pretrain", "evaluate", "embed", "search"),
    *("report", "reproduce", "bench", "export", "import"),
)


def commands() -> str:
    """The help of every command, as a terminal of 100 columns shows it."""
    parts = []
    for name in COMMANDS:
        words = [sys.executable, "-m", "relatum", *name.split(), "--help"]
        environment = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "PATH": ""}
        text = subprocess.run(words, capture_output=True, text=True, check=True, env=environment).stdout
        lines = "\n".join(line.rstrip() for line in text.strip("\n").splitlines())
        parts.append(f"### relatum {name}\n\n```\n{lines}\n```\n")
    return "\n".join(parts)


def keys() -> str:
    """Every key of a recipe with its default."""
    tables = {**config.SECTIONS}
    parts = []
    for name, kind in tables.items():
        rows = [f"| `{name}.{f.name}` | `{f.default}` | {f.metadata['help']} |" for f in fields(kind)]
        parts.append("\n".join(["| key | default | meaning |", "| --- | --- | --- |", *rows]))
    for method, row in METHODS.items():
        rows = [f"| `objective.{f.name}` | `{f.default}` | {f.metadata['help']} |" for f in fields(row.options)]
        if rows:
            parts.append("\n".join([f"**{method}**\n", "| key | default | meaning |", "| --- | --- | --- |", *rows]))
    return "\n\n".join(parts) + "\n"


def broken_links() -> list[str]:
    """Relative links that lead nowhere."""
    pages = [*HERE.glob("*.md"), *HERE.parent.glob("*.md"), *HERE.parent.glob("results/*.md")]
    bad = []
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            if "://" not in target and not (page.parent / target).exists():
                bad.append(f"{page.relative_to(HERE.parent)}: {target}")
    return bad


def main() -> None:
    """Write the page and report broken links."""
    head = "# Reference\n\nWritten by `make docs` from the code."
    page = f"{head}\n\n## Commands\n\n{commands()}\n## Recipe keys\n\n{keys()}"
    (HERE / "reference.md").write_text(page, "utf-8")
    bad = broken_links()
    print("\n".join(bad) or f"{HERE / 'reference.md'} written; all links lead somewhere")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
