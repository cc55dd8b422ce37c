"""How `--help` shows parameters: a flag and an argument without the type that the CLI library adds to them."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup


class _PlainHelp:
    """Usage lines such as `RUN QUERY...` instead of `{RUN} {QUERY}...`, and no `<bool>` or `<list[Path]>`."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The words behind the command's name; braces stay where they enclose a choice."""
        pieces: list[str] = super().collect_usage_pieces(ctx)  # type: ignore[misc]
        return [piece if "|" in piece else piece.replace("{", "").replace("}", "") for piece in pieces]

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, with `--help`."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if parameter.param_type_name == "argument":  # its name says what it is
                parameter.display_type_rich = _nothing
            elif parameter.is_flag:
                parameter.metavar = ""
        return parameters


def _nothing(ctx: Any) -> None:
    return None


class Command(_PlainHelp, TyperCommand):
    """A command."""


class Group(_PlainHelp, TyperGroup):
    """A group of commands."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The commands, each with its first sentence in full; the CLI library would cut it off after one line."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, command.get_short_help_str(limit=1000)) for name, command in commands if command]
            )
