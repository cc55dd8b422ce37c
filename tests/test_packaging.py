"""The package metadata agrees with the code: dependencies, extras, Python versions and the files that are installed."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

from scripts import load_script

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "relatum"
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT = SETTINGS["project"]
DISTRIBUTIONS = {
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "faiss": "faiss-cpu",
    "umap": "umap-learn",
}  # where the names differ
NOT_IMPORTED = {"onnx", "onnxruntime"}  # torch.onnx imports the one; tests run exported networks with the other
DEVELOPMENT = {"dev", "docs"}  # extras for work on relatum itself


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def names(requirements: list[str]) -> set[str]:
    return {normalised(re.match(r"[\w.-]+", text)[0]) for text in requirements}  # type: ignore[index]


def imported() -> set[str]:
    """The distributions that the source imports, wherever in a file it does so."""
    modules: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                modules.add(node.module.partition(".")[0])
    third_party = modules - set(sys.stdlib_module_names) - {"relatum"}
    return {normalised(DISTRIBUTIONS.get(name, name)) for name in third_party}


def test_every_imported_package_is_declared_and_no_other() -> None:
    extras = {name: names(rows) for name, rows in PROJECT["optional-dependencies"].items() if name not in DEVELOPMENT}
    declared = names(PROJECT["dependencies"]).union(*extras.values())
    used = imported()
    assert used <= declared
    assert declared - used - {"tensorboard"} == NOT_IMPORTED  # tensorboard is imported through torch.utils


def test_messages_and_documents_name_what_can_be_installed() -> None:
    """relatum is on no package index: messages name the package itself, documents the extras of a clone."""
    texts = [*SOURCE.rglob("*.py"), *ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
    assert not [path for path in texts if "relatum[" in path.read_text("utf-8")]
    readme = (ROOT / "README.md").read_text("utf-8")
    listed = set(re.findall(r"`([\w-]+)`", readme[readme.index("optional extras:") :].split(")")[0]))
    assert listed == set(PROJECT["optional-dependencies"]) - DEVELOPMENT


def test_python_versions_agree() -> None:
    lowest = PROJECT["requires-python"].removeprefix(">=")
    versions = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert versions[0] == lowest
    assert SETTINGS["tool"]["ruff"]["target-version"] == "py" + lowest.replace(".", "")
    assert SETTINGS["tool"]["mypy"]["python_version"] == lowest
    assert f"Python {lowest} or later" in (ROOT / "README.md").read_text("utf-8")
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text("utf-8")
    assert re.findall(r'"(3\.\d+)"', workflow) == versions


def test_constraints_allow_what_is_declared() -> None:
    """Every direct dependency that `make install` installs has exactly one pinned version."""
    lines = [line for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if not line.startswith("#")]
    pinned = [normalised(line.split("==")[0]) for line in lines]
    extras = PROJECT["optional-dependencies"]
    assert len(pinned) == len(set(pinned))
    assert names([*PROJECT["dependencies"], *extras["dev"], *extras["docs"], *extras["faiss"]]) <= set(pinned)


def test_every_data_file_of_the_source_is_installed() -> None:
    patterns = SETTINGS["tool"]["setuptools"]["package-data"]["relatum"]
    listed = {path for pattern in patterns for path in SOURCE.glob(pattern)}
    present = {p for p in SOURCE.rglob("*") if p.is_file() and p.suffix not in (".py", ".pyc", ".nbi", ".nbc")}
    assert listed == present


def test_every_pinned_version_has_hashes() -> None:
    pinned = re.findall(r"(?m)^([\w.-]+==\S+)$", (ROOT / "constraints.txt").read_text("utf-8"))
    text = (ROOT / "constraints-hashes.txt").read_text("utf-8")
    entries = re.findall(r"(?m)^([\w.-]+==\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", text)
    assert [name for name, _ in entries] == pinned, "run tools/hashes.py"


def test_licences_of_installed_packages_are_permissive() -> None:
    assert load_script(ROOT / "tools" / "audit.py").check_licences() == []
