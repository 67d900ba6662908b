"""The command line.

Each module of ``commands`` has the commands of its name, and those that belong to them: ``run`` also demo, ``state``
look, ``asking`` effects, report and certificate, ``evidence`` verify.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from foldaway.cli.commands import (
    asking,
    audit,
    consume,
    end,
    evidence,
    key,
    plan,
    power,
    run,
    send,
    serve,
    site,
    sql,
    state,
    token,
    trial,
)
from foldaway.cli.terminal.leaving import INTERRUPTED, Interrupted, leave, tell_unwritten
from foldaway.cli.terminal.words import speak_any_encoding, tell
from foldaway.errors import FoldawayError

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


app = typer.Typer(
    name="foldaway",
    cls=PlainHelp,
    help="Run randomised trials without keeping records. Each record is folded into running sums (tallies), and "
    "effects are computed from these.",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain text, which a narrow terminal does not cut off
    pretty_exceptions_enable=False,  # a traceback with local variables would show records
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_FAMILIES = (plan, power, run, sql, state, asking, end, audit, evidence, consume, serve, key, trial, token, send, site)
for family in _FAMILIES:
    app.add_typer(family.app)


def _print_version(wanted: bool) -> None:
    if wanted:
        from foldaway import __version__

        print(f"foldaway {__version__}")
        raise typer.Exit


@app.callback()
def start(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    """Run randomised trials without keeping records.

    Each record is folded into running sums (tallies), and effects are computed from these.
    """
    if context.resilient_parsing or "--help" in sys.argv or "-h" in sys.argv:
        return  # the rest takes longer than the help
    import pyarrow as pa

    from foldaway.records.columns import leave_pandas_out

    # Arrow's handler would take control-C for itself while a block is read, and lose it if the block is nearly done.
    pa.enable_signal_handlers(False)
    leave_pandas_out()


def main() -> NoReturn:
    """Run the command line as a process of its own."""
    leave(exit_code())


def exit_code() -> int:
    """Run the command line; errors are sentences, never tracebacks with values of records in them."""
    speak_any_encoding()
    try:
        app()
    except FoldawayError as error:
        tell(f"error: {error}")
        return 1
    except Interrupted as stopped:
        tell(str(stopped))
        return INTERRUPTED
    except SystemExit as ended:
        if ended.code == INTERRUPTED:  # which is all that Typer tells of control-C
            tell("stopped; what was saved before is unchanged.")
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except OSError as error:
        return tell_unwritten(error) if error.errno in (errno.ENOSPC, errno.EDQUOT) else _bug(error)
    except Exception as error:
        return _bug(error)
    return 0


def _bug(error: Exception) -> int:
    """Say where an error came from that nobody has foreseen; its own words may hold values of records."""
    if os.environ.get("FOLDAWAY_DEBUG"):
        raise error
    where = traceback.extract_tb(error.__traceback__)[-1]
    tell(
        f"unexpected error: {type(error).__name__} at {Path(where.filename).name}:{where.lineno}. This is a bug in "
        "foldaway. Set FOLDAWAY_DEBUG=1 to see the whole traceback; it may show values of records."
    )
    return 70
