"""Messages name flags on the command line and arguments in Python."""

from __future__ import annotations

import pytest
import typer

from relatum import errors
from relatum.cli.app import app
from relatum.errors import InputError, Interrupted, command_line, phrase


@pytest.mark.parametrize(
    ("flags", "arguments"),
    [
        ("Pretrain with --val-fraction 0.2, or not.", "Pretrain with val_fraction=0.2, or not."),
        ("--resume continues it, --overwrite replaces it.", "resume=True continues it, overwrite=True replaces it."),
        ("at least 2 views (--views).", "at least 2 views (views=...)."),
        ("use --set views.policy=rotation-study.", "use views.policy=rotation-study."),
        ("repeat the name (--backbone mine:net, or not)", "repeat the name (backbone='mine:net', or not)"),
        ("--labels 0: it needs labels.", "labels=0: it needs labels."),
        ("add --labels FRACTION.", "add labels=FRACTION."),
        ("a part (evaluate --split val).", "a part (evaluate split='val')."),
        ("new: relatum pretrain my x --init run --out NEW", "new: relatum.pretrain('my x', init='run', out=NEW)"),
        ("`relatum pretrain --resume --out FOLDER` continues", "`relatum.pretrain(resume=True, out=FOLDER)` continues"),
        ("`relatum evaluate tsne` and `relatum search`", "`relatum.evaluate('tsne', ...)` and `relatum.search`"),
        ("`relatum import a/b.tar --out RUN`.", "`relatum.import_weights('a/b.tar', out=RUN)`."),
        ("`relatum evaluate knn RUN --set k=5`", "`relatum evaluate knn RUN --set k=5`"),
        ("`relatum list datasets`, `relatum data get stl10`", "`relatum list datasets`, `relatum data get stl10`"),
        ("a -- b, 3--4 and --", "a -- b, 3--4 and --"),
    ],
)
def test_flags_become_arguments(flags: str, arguments: str) -> None:
    assert str(InputError(flags)) == arguments
    with command_line():
        assert str(InputError(flags)) == flags
    assert phrase(arguments) == arguments


def test_an_interruption_speaks_the_same_language() -> None:
    assert str(Interrupted(2, "stopped; --resume continues.")) == "stopped; resume=True continues."
    assert Interrupted(15, "").exit_code == 143


def test_the_list_of_switches_is_that_of_the_commands() -> None:
    """Flags without a value become `name=True`; `relatum.errors` cannot import the commands."""
    command = typer.main.get_command(app)
    switches = set()
    for part in [command, *command.commands.values()]:  # type: ignore[attr-defined]
        for option in part.params:
            if getattr(option, "is_flag", False) and option.name not in ("help", "version"):
                switches |= {flag.removeprefix("--") for flag in option.opts if flag.startswith("--")}
    assert switches == set(errors._SWITCHES)
