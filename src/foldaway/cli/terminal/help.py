"""Help for people: what to type, and no names of Python's types."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

_WORDS = {"<str>": "TEXT", "<path>": "PATH", "<list[str]>": "TEXT"}


class PlainHelp(TyperGroup):
    """The commands; of their options and arguments, help shows a word such as NUMBER, where Typer has <int range>."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command by its name."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _make_plain(command, ctx)
        return command


def _make_plain(command: Any, context: Any) -> None:
    for each in getattr(command, "commands", {}).values():
        _make_plain(each, context)
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            parameter.display_type_rich = lambda ctx: ""  # its name says what it is
        elif parameter.metavar is None and not getattr(parameter, "is_flag", False):
            if not hasattr(parameter, "display_type"):
                continue  # an older Typer, which has such words itself
            shown = parameter.display_type(context)
            number = shown.startswith(("<int", "<float"))
            parameter.metavar = "NUMBER" if number else _WORDS.get(shown, shown.strip("<>"))
