"""The public API is a promise: names and full signatures, compared with a committed file.

After a change that is meant to change the API: `python tests/test_public_api.py`, and add a line to CHANGELOG.md.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import relatum
from relatum import api

SNAPSHOT = Path(__file__).with_name("public_api.txt")


def signature(name: str, function: Callable[..., object]) -> str:
    """The signature, one argument per line, so that a change is one line of a diff."""
    lines, starred = [f"{name}("], False
    found = inspect.signature(function)
    for parameter in found.parameters.values():
        if parameter.kind == parameter.KEYWORD_ONLY and not starred:
            lines.append("    *,")
            starred = True
        prefix = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        kind = "" if parameter.annotation is parameter.empty else f": {parameter.annotation}"
        lines.append(f"    {prefix}{parameter.name}{kind}{default},")
    return "\n".join([*lines, f") -> {found.return_annotation}"])


def describe(name: str, value: object) -> list[str]:
    """A function as its signature; a class with its constructor, public methods and properties."""
    if not inspect.isclass(value):
        return [signature(name, value) if callable(value) else name]
    lines = [signature(f"class {name}", value)]
    for attribute, member in sorted(vars(value).items()):
        if attribute.startswith("_"):
            continue
        if isinstance(member, property):
            lines.append(f"{name}.{attribute}: {inspect.signature(member.fget).return_annotation}")  # type: ignore[arg-type]
        elif isinstance(member, classmethod):
            lines.append(signature(f"{name}.{attribute}", member.__func__))
        elif inspect.isfunction(member):
            lines.append(signature(f"{name}.{attribute}", member))
    return lines


def public_api() -> str:
    lines: list[str] = []
    for name in sorted(relatum.__all__):
        lines += describe(name, getattr(relatum, name))
    lines += describe("api.report", api.report)
    return "\n".join(lines) + "\n"


def test_the_public_api_is_the_committed_one() -> None:
    assert public_api() == SNAPSHOT.read_text("utf-8")


@pytest.mark.parametrize("name", [name for name in api.__all__ if name != "Run"])
def test_every_argument_is_typed_and_has_a_name(name: str) -> None:
    found = inspect.signature(getattr(api, name))
    assert found.return_annotation is not inspect.Signature.empty
    for parameter in found.parameters.values():
        assert parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL), f"{name}: {parameter}"
        assert parameter.annotation is not parameter.empty, f"{name}: {parameter}"


def test_public_names_are_imported_lazily_and_exist() -> None:
    code = "import relatum, sys; assert 'torch' not in sys.modules; [getattr(relatum, n) for n in relatum.__all__]"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'pretrian'"):
        relatum.pretrian  # type: ignore[attr-defined]  # noqa: B018


def test_command_line_and_python_use_the_same_names() -> None:
    from relatum.cli.app import COMMANDS

    for name in ("pretrain", "evaluate", "search", "export"):
        flags = set(inspect.signature(COMMANDS[name]).parameters) - {"json", "set"}
        assert flags <= set(inspect.signature(getattr(api, name)).parameters), name


if __name__ == "__main__":
    SNAPSHOT.write_text(public_api(), "utf-8")
