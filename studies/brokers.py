"""A trial of any size through a real broker: for studies that hold one way of folding against another.

Records are sent as Arrow, some tens of thousands to a message, a few messages at a time, and consumed in between, so
that neither the broker nor the memory has to hold the whole trial.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from foldaway import Plan, Trial

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

if TYPE_CHECKING:
    from brokers import Server

RECORDS = 50_000
"""Records in a message: about 4 MB of a simulated trial, within the 8 MB that the brokers are set up for."""

_AT_A_TIME = 8


def through_nats(batches: Iterable[pa.RecordBatch], plan: Plan, key: bytes | None = None) -> Trial:
    """The trial of all records, sent through a NATS server of its own and consumed as `foldaway consume` does."""
    return _through("nats", batches, plan, key)


def through_redis(batches: Iterable[pa.RecordBatch], plan: Plan, key: bytes | None = None) -> Trial:
    """The same through a Redis server of its own."""
    return _through("redis", batches, plan, key)


def _through(kind: str, batches: Iterable[pa.RecordBatch], plan: Plan, key: bytes | None) -> Trial:
    from brokers import KINDS, missing

    if missing(kind):
        sys.exit(f"This study needs a broker: {missing(kind)}.")
    server = KINDS[kind]()
    with tempfile.TemporaryDirectory(prefix="brokers-") as folder:
        try:
            server.start()
            return _sent_and_consumed(server, batches, plan, key, Path(folder))
        finally:
            server.remove()


def _sent_and_consumed(
    server: Server, batches: Iterable[pa.RecordBatch], plan: Plan, key: bytes | None, folder: Path
) -> Trial:
    from bodies import as_arrow
    from brokers import Sent
    from consuming import consume

    server.create(plan.name)
    trial, sent, records = Trial(plan, key=key), 0, 0
    for table in _tables(batches, max(RECORDS, plan.privacy.cohort)):
        server.send(plan.name, [Sent(as_arrow(table))])
        sent, records = sent + 1, records + table.num_rows
        if sent % _AT_A_TIME == 0:
            consume(server, plan, folder, key=key, delete=True)
    trial, consumer = consume(server, plan, folder, key=key, delete=True, end=True)
    if trial.n != records or consumer.progress.pending or server.held(plan.name):
        sys.exit(f"{server.name}: {records:,} records were sent, {trial.n:,} were counted.")
    return trial


def _tables(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """The records in tables of so many rows; the last has up to twice as many, so that none is less than a cohort."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        while count >= 2 * rows:
            whole = pa.Table.from_batches(held)
            yield whole.slice(0, rows)
            held = whole.slice(rows).to_batches()
            count -= rows
    if held:
        yield pa.Table.from_batches(held)
