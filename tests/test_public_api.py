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
from relatum.cli.app import COMMANDS

SNAPSHOT = Path(__file__).with_name("public_api.txt")


def signature(name: str, function: Callable[..., object]) -> str:
    """The signature, one argument per line, so that a change is one line of a diff."""
    lines, starred = [f"{name}("], False
    described = inspect.signature(function)
    for parameter in described.parameters.values():
        if parameter.kind == parameter.KEYWORD_ONLY and not starred:
            lines.append("    *,")
            starred = True
        prefix = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        kind = "" if parameter.annotation is parameter.empty else f": {parameter.annotation}"
        lines.append(f"    {prefix}{parameter.name}{kind}{default},")
    return "\n".join([*lines, f") -> {described.return_annotation}"])


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
    described = inspect.signature(getattr(api, name))
    assert described.return_annotation is not inspect.Signature.empty
    for parameter in described.parameters.values():
        assert parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL), f"{name}: {parameter}"
        assert parameter.annotation is not parameter.empty, f"{name}: {parameter}"


def test_public_names_are_imported_lazily_and_exist() -> None:
    code = "import relatum, sys; assert 'torch' not in sys.modules; [getattr(relatum, n) for n in relatum.__all__]"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'pretrian'"):
        relatum.pretrian  # type: ignore[attr-defined]  # noqa: B018


COMMANDS_AND_FUNCTIONS = [(name, getattr(api, name)) for name in api.__all__ if name in COMMANDS]
RENAMED = {  # flags that have another name in Python
    "embed": {"run": "backbone", "backbone": "architecture"},
    "evaluate": {"set": "settings"},
    "reproduce": {"render": "render_only", "json": "as_json"},
}


@pytest.mark.parametrize(("name", "function"), [*COMMANDS_AND_FUNCTIONS, ("import", api.import_weights)])
def test_command_line_and_python_use_the_same_names_and_defaults(name: str, function: Callable[..., object]) -> None:
    arguments = inspect.signature(function).parameters
    not_given = (None, inspect.Parameter.empty, (), ("results",))  # a list that was not given is None as a flag
    for flag in inspect.signature(COMMANDS[name]).parameters.values():
        renamed = RENAMED.get(name, {}).get(flag.name, flag.name)
        if renamed == "json":  # how a command prints what the function returns
            continue
        expected = arguments[renamed].default
        assert _plain(flag.default) == expected or (flag.default in not_given and expected in not_given), flag


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Path) else value


if __name__ == "__main__":
    SNAPSHOT.write_text(public_api(), "utf-8")
