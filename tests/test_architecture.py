"""What import-linter (`make lint`, pyproject.toml) does not see: torch-free modules, and that nothing imports `cli`."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from relatum.config.methods import METHODS

SOURCE = Path(__file__).parents[1] / "src" / "relatum"


def imports(path: Path) -> set[str]:
    """The parts of relatum that a file imports, wherever in the file it does so."""
    imported: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            bare = node.module == "relatum"
            names = [f"relatum.{alias.name}" for alias in node.names] if bare else [node.module]
        else:
            continue
        imported |= {name.split(".")[1] for name in names if name.startswith("relatum.")}
    return imported - {"__version__"}


def part(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


FILES = sorted(SOURCE.rglob("*.py"))


def test_nothing_imports_the_command_line() -> None:
    users = {part(path) for path in FILES if "cli" in imports(path)}
    assert users == {"cli", "__main__"}


def contract(name: str) -> dict[str, list[str]]:
    contracts = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    return next(entry for entry in contracts["contracts"] if entry["name"] == name)


def test_the_contract_that_methods_are_independent_names_every_method() -> None:
    modules = {row.target.partition(":")[0] for row in METHODS.values()}
    assert set(contract("methods do not know one another")["modules"]) == modules


def test_the_table_of_folders_names_every_package_in_the_order_of_the_layers() -> None:
    text = (SOURCE.parents[1] / "docs" / "architecture.md").read_text("utf-8")
    listed = [
        [name.strip(" `") for name in line.split("|")[2].split(",")]
        for line in text.splitlines()
        if line.startswith("| ") and line.split("|")[1].strip().isdigit()
    ]
    layers = contract("data flows one way")["layers"][1:]  # without __main__
    packages = [name.strip() for layer in layers for name in layer.split("|")]
    assert [name for names in listed for name in names] == packages


@pytest.mark.parametrize(
    "module",
    [
        "relatum",
        "relatum.api",
        "relatum.cli",
        "relatum.config",
        "relatum.data",
        "relatum.evaluation",
        "relatum.paper.reproduce",
        "relatum.registry",
        "relatum.report",
        "relatum.runs.folder",
        "relatum.runs.ledger",
        "relatum.runs.metrics",
        "relatum.runs.results",
        "relatum.system.devices",
        "relatum.system.progress",
    ],
)
def test_light_parts_do_not_import_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules or 'numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
