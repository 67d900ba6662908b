"""WHERE a trial is: in a file, in a consumer's store, or on a server. Every command that asks a trial finds it here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from foldaway.cli.terminal.saved_trial import SavedTrial
from foldaway.cli.terminal.served_trial import ServedTrial
from foldaway.errors import StateError

Where = Annotated[
    str,
    typer.Argument(
        metavar="WHERE",
        help="A file written by --save, the folder of a consumer's store, or a trial on a server: its name, or its "
        "address https://HOST/v1/trials/NAME.",
    ),
]
ItsServer = Annotated[
    str | None, typer.Option("--server", envvar="FOLDAWAY_SERVER", help="The server, if WHERE is a trial's name.")
]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def find(
    where: str, key: Path | None = None, server: str | None = None, token: str | None = None, ca: Path | None = None
) -> SavedTrial | ServedTrial:
    """The trial at an address, in a file or folder, or else of this name on the server.

    Raises:
        StateError: It is none of these.
    """
    if where.startswith(("http://", "https://")):
        from foldaway.federated.link import trial_address

        address, name = trial_address(where)
        return ServedTrial(name, address.removesuffix(f"/v1/trials/{name}"), token, ca)
    if Path(where).exists():
        return SavedTrial(Path(where), key)
    if not _NAME.fullmatch(where):
        raise StateError(f"there is no state {where}.")
    if not server:
        raise StateError(
            f"there is no state {where}. If it is the name of a trial on a server, say which server: --server, or the "
            "variable FOLDAWAY_SERVER."
        )
    return ServedTrial(where, server, token, ca)
