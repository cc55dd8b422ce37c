"""What import-linter (`make lint`, pyproject.toml) does not see: torch-free modules, and that nothing imports `cli`."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "relatum"


def imports(path: Path) -> set[str]:
    """The parts of relatum that a file imports, wherever in the file it does so."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            bare = node.module == "relatum"
            names = [f"relatum.{alias.name}" for alias in node.names] if bare else [node.module]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("relatum.")}
    return found - {"__version__"}


def part(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


FILES = sorted(SOURCE.rglob("*.py"))


def test_nothing_imports_the_command_line() -> None:
    users = {part(path) for path in FILES if "cli" in imports(path)}
    assert users == {"cli", "__main__"}


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
