"""Which server a command talks to: its options, and the client that they make."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foldaway.cli.terminal.words import tell_waiting
from foldaway.errors import ServerError, ServerWarning, instead_of, not_installed

if TYPE_CHECKING:
    from foldaway.client import Client

Server = Annotated[str, typer.Option(envvar="FOLDAWAY_SERVER", help="The server's address.")]
Token = Annotated[
    str,
    typer.Option(
        envvar="FOLDAWAY_TOKEN",
        help="A token for the server. Prefer the variable FOLDAWAY_TOKEN, which other users cannot see.",
    ),
]
Reader = Annotated[
    str | None,
    typer.Option(envvar="FOLDAWAY_TOKEN", help="A token for the server; prefer FOLDAWAY_TOKEN."),
]
Authority = Annotated[
    Path | None, typer.Option("--ca", envvar="FOLDAWAY_CA", help="The certificate authority of an https server.")
]
TrialName = Annotated[str, typer.Argument(metavar="NAME", help="The trial's name.")]


# Seconds for a question: somebody waits for its answer, and nothing is lost without one. A server that is down is asked
# again for so long, and one that is busy gets twice as long to answer.
QUESTION = 5.0


def connect(server: str, token: str, ca: Path | None, *, patience: float = 60.0) -> Client:
    """A client of the server, which goes on trying for so many seconds."""
    with extra():
        from foldaway.client import Client

    warnings.simplefilter("ignore", ServerWarning)  # `foldaway send` says in its own words what is pending
    told, timeout = (None, 2 * QUESTION) if patience <= QUESTION else (tell_waiting, 60.0)
    trusted = True if ca is None else str(ca)
    return Client(server, token, patience=patience, timeout=timeout, verify=trusted, told=told)


def extra() -> instead_of:
    """Imports of packages that come with the extra."""
    return instead_of(ModuleNotFoundError, _missing)


def _missing(error: ModuleNotFoundError) -> ServerError:
    missing = (error.name or "").partition(".")[0]
    if missing == "resource":  # which no package can add
        return ServerError("the service needs Linux or macOS; on Windows, run it in WSL or in a container.")
    if missing == "foldaway":
        return ServerError("this installation of foldaway is incomplete; install it again.")
    return ServerError(not_installed(missing, "serve"))
