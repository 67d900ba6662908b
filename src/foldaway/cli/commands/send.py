"""Files to a server, batch by batch, resumable."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from foldaway.cli.terminal.key_file import read_or_make
from foldaway.client import Client
from foldaway.errors import ServerError, SourceError
from foldaway.keeping.ledger import Ledger, Pages
from foldaway.plan import Plan
from foldaway.records.check import check
from foldaway.records.faults import FaultyBatch
from foldaway.sources.formats.chunk import Chunk, require_wanted, wanted_by
from foldaway.sources.formats.files import read
from foldaway.sources.formats.paths import Stdin

# Statuses with which a server refuses a batch for what is in it.
_FAULTY = (400, 422)


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


def own_key(path: Path | None = None) -> bytes:
    """This sender's key, which no server has: read, or made where there is none yet.

    Args:
        path: Where it is; by default in the user's folder for the state of programs.
    """
    if path is None:
        state = os.environ.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser()
        path = Path(state, "foldaway", "sender.key")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError:
            raise SourceError(f"the sender's key cannot be kept as {path}; say where with --key FILE.") from None
    return read_or_make(path)


def send_files(
    client: Client,
    trial: str,
    paths: Sequence[Path | Stdin],
    progress: Callable[[Path | Stdin, int], None],
    *,
    key: bytes,
    delimiter: str | None = None,
) -> Done:
    """Send files to a trial, each under a producer's name of its own.

    The name is made from the file's name, size, time of last change and place on the disk, under the sender's key. The
    server keeps it, so nothing in it is made from the file's content, and without the key nobody can test a guess.
    The k-th batch of a file has the number k, so a second run knows what the server has.
    """
    if any(isinstance(path, Stdin) for path in paths):
        raise ServerError("standard input cannot be sent again after a break; send a file.")
    plan = Plan.loads(msgspec.json.encode(client.plan(trial)).decode())
    wanted = wanted_by(plan)
    marks = Ledger(Pages(key, {}))
    sent = known = pending = 0
    for path in paths:
        assert isinstance(path, Path)
        client.producer = f"file-{marks.mark(path).hex()}"
        durable = client.durable(trial)
        told = partial(progress, path)
        batches = read(path, wanted, whole=plan.complete_units, delimiter=delimiter, progress=told)
        for number, batch in enumerate(batches, start=1):
            require_wanted(path, wanted, batch)
            if batch.ragged and plan.on_fault == "refuse":
                raise ServerError(f"{path} has {batch.ragged:,} lines that are not records; mend them first.")
            if number <= durable:
                known += batch.records.num_rows
                continue
            try:
                receipt = client.send(trial, batch.records)
            except ServerError as error:
                problem = ServerError(f"{path}{_where(plan, batch, error)}: {error}", error.status, error.expected)
            else:
                known += batch.records.num_rows if receipt["repeated"] else 0
                sent += receipt["folded"]
                pending = receipt["pending"]
                continue
            raise problem
    return Done(sent, known, pending)


def _where(plan: Plan, batch: Chunk, error: ServerError) -> str:
    """The line of the first faulty record, which the server cannot know."""
    if batch.line is None or error.status not in _FAULTY:
        return ""
    try:
        check(batch.records, plan, text=True)
    except FaultyBatch as faulty:
        return "" if faulty.first is None else f", first in line {batch.line + faulty.first:,}"
    return ""
