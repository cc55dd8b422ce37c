"""`make docs`: writes docs/reference.md and docs/api.md from the source, and checks all links.

reference.md has all commands, recipe keys and protocol settings. api.md lists the public names; MkDocs fills in their
signatures and docstrings.
"""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

import relatum
from relatum import config
from relatum.config.methods import METHODS
from relatum.config.protocols import PROTOCOLS

HERE = Path(__file__).parent
COMMANDS = (
    *("demo", "list", "data get", "data info", "data shard", "pretrain", "evaluate", "embed", "search"),
    *("report", "duplicates", "outliers", "cluster", "select", "explore", "reproduce", "bench", "export", "import"),
)
API = {  # public names by group
    "Training": ("relatum.pretrain", "relatum.Run", "relatum.load_backbone", "relatum.Embedder"),
    "Using a backbone": ("relatum.embed", "relatum.search", "relatum.Hit", "relatum.evaluate", "relatum.Result"),
    "Collections of images": (
        *("relatum.explore", "relatum.duplicates", "relatum.DuplicateGroup", "relatum.outliers", "relatum.Outlier"),
        *("relatum.cluster", "relatum.Album", "relatum.select", "relatum.Selected"),
    ),
    "In a custom training loop": ("relatum.RelationalReasoning", "relatum.views.Views", "relatum.data.load"),
    "Other tools": ("relatum.export", "relatum.import_weights", "relatum.api.report", "relatum.reproduce"),
    "Errors": ("relatum.errors.RelatumError", "relatum.errors.InputError"),
}
API_INTRODUCTION = """# Python API

`make docs` generates this page from the source. [From Python](python.md) shows how the parts work together.
"""
INTRODUCTION = """# Reference

`make docs` generates this page from the source. [guide.md](guide.md) explains how the parts work together.

A default of `None` means that the value comes from the dataset, the run, the preset or the machine, or that there is no
limit.
"""


def command_help() -> str:
    """The help of every command, as a terminal with 100 columns shows it."""
    parts = []
    for name in COMMANDS:
        command = [sys.executable, "-m", "relatum", *name.split(), "--help"]
        environment = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "PATH": ""}
        environment["PYTHONPATH"] = str(HERE.parent / "src")  # this clone, whichever one is installed
        text = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
        lines = "\n".join(line.rstrip() for line in text.strip("\n").splitlines())
        parts.append(f"### relatum {name}\n\n```\n{lines}\n```\n")
    return "\n".join(parts)


def table(settings: type, prefix: str = "") -> str:
    """One row per setting: its key, default and meaning, and the values it accepts."""
    rows = [f"| `{prefix}{f.name}` | `{f.default!r}` | {_meaning(f)} |" for f in fields(settings)]
    return "\n".join(["| key | default | meaning |", "| --- | --- | --- |", *rows]) + "\n"


def _meaning(field: Field[Any]) -> str:
    choices = field.metadata["choices"]
    return field.metadata["help"] + (f" ({', '.join(f'`{choice}`' for choice in choices)})" if choices else "")


def recipe_keys() -> str:
    """Every key of a recipe, section by section; the `objective` section depends on the method."""
    parts = [f"### {name}\n\n{table(section, f'{name}.')}" for name, section in config.SECTIONS.items()]
    for method, row in METHODS.items():
        if fields(row.options):
            parts.append(f"### objective, method {method}\n\n{table(row.options, 'objective.')}")
    return "\n".join(parts)


def protocol_settings() -> str:
    """The settings of every evaluation protocol."""
    return "\n".join(f"### {name}\n\n{table(row.settings)}" for name, row in PROTOCOLS.items())


def api_page() -> str:
    """The public names by group, as directives of mkdocstrings."""
    grouped = {name for names in API.values() for name in names}
    missing = {f"relatum.{name}" for name in relatum.__all__ if name != "__version__"} - grouped
    assert not missing, f"API in docs/build.py lacks {', '.join(sorted(missing))}"
    parts = [API_INTRODUCTION]
    for title, names in API.items():
        parts.append(f"## {title}\n")
        parts += [f"::: {_definition(name)}\n" for name in names]
    return "\n".join(parts)


def _definition(name: str) -> str:
    """Where a public name is defined: the module and the name."""
    module, _, attribute = name.rpartition(".")
    defined = getattr(importlib.import_module(module), attribute)
    return f"{defined.__module__}.{defined.__qualname__}"


def broken_links() -> list[str]:
    """Relative links to files that do not exist."""
    pages = [*HERE.glob("*.md"), *HERE.parent.glob("*.md"), *HERE.parent.glob("results/*.md")]
    broken = []
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(HERE.parent)}: {target}")
    return broken


def main() -> None:
    """Write the page and report broken links."""
    sections = (
        INTRODUCTION,
        f"## Commands\n\n{command_help()}",
        f"## Recipe keys\n\nSet them with `--set key=value` or in a recipe file.\n\n{recipe_keys()}",
        f"## Protocol settings\n\nSet them with `relatum evaluate … --set key=value`.\n\n{protocol_settings()}",
    )
    (HERE / "reference.md").write_text("\n".join(sections), "utf-8")
    (HERE / "api.md").write_text(api_page(), "utf-8")
    broken = broken_links()
    print("\n".join(broken) or "docs/reference.md and docs/api.md written; all links lead to existing files")
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
