"""Files to a server, batch by batch, resumable."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from foldaway.client import Client
from foldaway.errors import ServerError, SourceError
from foldaway.plan import Plan
from foldaway.sources import read
from foldaway.sources.folding import wanted_by
from foldaway.sources.paths import Stdin


class Done(NamedTuple):
    """What became of the records of some files.

    Attributes:
        sent: Records that the server has folded now.
        known: Records that it had from an earlier run.
        pending: Records, of any producer, that it has not yet made durable.
    """

    sent: int
    known: int
    pending: int


def send_files(
    client: Client, trial: str, paths: Sequence[Path | Stdin], progress: Callable[[Path | Stdin, int], None]
) -> Done:
    """Send files to a trial, each under a producer's name of its own, made from its content.

    The k-th batch of a file has the number k, so a second run knows what the server has.
    """
    if any(isinstance(path, Stdin) for path in paths):
        raise ServerError("standard input cannot be sent again after a break; send a file.")
    plan = Plan.loads(msgspec.json.encode(client.plan(trial)).decode())
    sent = known = pending = 0
    for path in paths:
        assert isinstance(path, Path)
        client.producer = f"file-{_digest(path)}"
        durable = client.durable(trial)
        told = partial(progress, path)
        for number, batch in enumerate(read(path, wanted_by(plan), whole=plan.complete_units, progress=told), start=1):
            if batch.ragged and plan.on_fault == "refuse":
                raise ServerError(f"{path} has {batch.ragged:,} lines that are not records; mend them first.")
            if number <= durable:
                known += batch.records.num_rows
                continue
            receipt = client.send(trial, batch.records)
            if receipt["repeated"]:
                known += batch.records.num_rows
            sent += receipt["folded"]
            pending = receipt["pending"]
    return Done(sent, known, pending)


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()[:32]
    except OSError as error:
        reason = error.strerror
    raise SourceError(f"{path} cannot be read: {reason}.")
