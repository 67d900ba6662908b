"""Which server a command talks to: its options, and the client that they make."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foldaway.cli.terminal.words import tell_waiting
from foldaway.errors import ServerError, ServerWarning, not_installed

if TYPE_CHECKING:
    from foldaway.client import Client

Server = Annotated[str, typer.Option(envvar="FOLDAWAY_SERVER", help="The server's address.")]
Token = Annotated[str, typer.Option(envvar="FOLDAWAY_TOKEN", help="A token for it; FOLDAWAY_TOKEN is safer.")]
Authority = Annotated[
    Path | None, typer.Option("--ca", envvar="FOLDAWAY_CA", help="The certificate authority of an https server.")
]
TrialName = Annotated[str, typer.Argument(metavar="NAME", help="The trial's name.")]


# Seconds for a question: somebody waits for its answer, and nothing is lost without one.
QUESTION = 5.0


def connect(server: str, token: str, ca: Path | None, *, patience: float = 60.0) -> Client:
    """A client of the server, which goes on trying for so many seconds."""
    with extra():
        from foldaway.client import Client

    warnings.simplefilter("ignore", ServerWarning)  # `foldaway send` says in its own words what is pending
    told = None if patience <= QUESTION else tell_waiting
    return Client(server, token, patience=patience, verify=True if ca is None else str(ca), told=told)


@contextmanager
def extra() -> Iterator[None]:
    """Imports of packages that come with the extra."""
    try:
        yield
        return
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
    if missing == "resource":  # which no package can add
        raise ServerError("the service needs Linux or macOS; on Windows, run it in WSL or in a container.")
    if missing == "foldaway":
        raise ServerError("this installation of foldaway is incomplete; install it again.")
    raise ServerError(not_installed(missing, "serve"))
