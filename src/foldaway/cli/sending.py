"""Files to a server, batch by batch, resumable."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from foldaway.client import Client
from foldaway.errors import ServerError
from foldaway.plan import Plan
from foldaway.sources import read
from foldaway.sources.folding import wanted_by
from foldaway.sources.paths import Stdin


def send_files(
    client: Client, trial: str, paths: Sequence[Path | Stdin], progress: Callable[[Path | Stdin, int], None]
) -> tuple[int, int, int]:
    """Send files to a trial, each under a producer's name of its own, made from its content.

    The k-th batch of a file has the number k, so a second run knows what the server has.

    Returns:
        Records sent, batches that were durable already, and records pending at the end.
    """
    plan = Plan.loads(msgspec.json.encode(client.plan(trial)).decode())
    sent = already = pending = 0
    for path in paths:
        if isinstance(path, Stdin):
            raise ServerError("standard input cannot be sent again after a break; send a file.")
        client.producer = f"file-{_digest(path)}"
        durable = client.durable(trial)
        told = lambda used, path=path: progress(path, used)  # noqa: E731
        for number, batch in enumerate(read(path, wanted_by(plan), whole=plan.complete_units, progress=told), start=1):
            if batch.ragged and plan.on_fault == "refuse":
                raise ServerError(f"{path} has {batch.ragged} lines that are not records; mend them first.")
            if number <= durable:
                already += 1
                continue
            receipt = client.send(trial, batch.records)
            sent += receipt["folded"]
            pending = receipt["pending"]
    return sent, already, pending


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()[:32]
