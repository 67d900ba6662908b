"""The command line.

``local`` has the commands that work on files, ``reporting`` and ``plan_new`` what begins and ends such work,
``consume`` the commands on streams, ``remote`` those around a server, ``federated`` those for sites and devices.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from foldaway.cli import consume, federated, local, plan_new, remote, reporting
from foldaway.cli.words import in_lines
from foldaway.errors import FoldawayError

app = typer.Typer(
    name="foldaway",
    help="Randomised trials that keep no records: fold each one into running tallies, read effects from them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # a traceback with local variables would show records
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(local.app)
app.add_typer(reporting.app)
local.plan_app.command("new")(plan_new.new)
app.add_typer(consume.app)
app.add_typer(remote.app)
app.add_typer(federated.app)


def _print_version(wanted: bool) -> None:
    if wanted:
        from foldaway import __version__

        print(f"foldaway {__version__}")
        raise typer.Exit


@app.callback()
def start(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    """Randomised trials that keep no records: fold each one into running tallies, read effects from them."""


def main() -> None:
    """Run the command line; errors are sentences, never tracebacks with values of records in them."""
    try:
        app()
    except FoldawayError as error:
        _fail(f"error: {error}", 1)
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        _fail("stopped; what was saved before stays as it is.", 130)
    except Exception as error:
        if os.environ.get("FOLDAWAY_DEBUG"):
            raise
        where = traceback.extract_tb(error.__traceback__)[-1]
        _fail(
            f"unexpected error: {type(error).__name__} at {Path(where.filename).name}:{where.lineno}. This is a bug in "
            "foldaway. Set FOLDAWAY_DEBUG=1 to see all of it; that may show values of records.",
            70,
        )


def _fail(message: str, code: int) -> None:
    told = message.encode(errors="backslashreplace").decode()
    # In a file, or for a script that looks for it, a sentence stays in one line.
    print(in_lines(told) if sys.stderr.isatty() else told, file=sys.stderr)
    sys.exit(code)
