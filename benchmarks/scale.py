"""What a billion devices or a trillion records take, for each way of collecting: computed from costs measured here.

A cost is processor time of one core, so that work that others do on the machine counts little. It is the difference
between a small run and a large one, without what starting costs; and it is all that one machine can measure: what a
network, a disk or a database adds where many servers share one is not in it.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import httpx
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from device_messages import DEVICES, crowd, load
from measure import show
from service_load import BATCH, arrow, create, ndjson, post

import foldaway as fa
from foldaway.simulation.datasets import checkout
from foldaway.simulation.demo import PLAN
from foldaway.sources.formats.body import ARROW, NDJSON

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from served import Served

SMALL, LARGE = 1_000_000, 3_000_000
CORES = 2  # of a server
DAYS = 30  # that a trial lasts, for what comes while it does
AT_MOST = 0.5  # of a server's time, so that peaks find it idle
HEAD = 250  # bytes around a device's message: the request's head and the answer


class Cost(NamedTuple):
    """What one record, or one device, costs.

    Attributes:
        way: How it is collected.
        seconds: Of one core.
        size: Bytes that are read or sent.
        stored: Bytes that stay on a server's disk.
        at_once: Whether a batch of them is worked off, or they come while the trial lasts.
    """

    way: str
    seconds: float
    size: float
    stored: float = 0.0
    at_once: bool = True


def main() -> None:
    """Print the measured costs, and what follows from them."""
    with tempfile.TemporaryDirectory() as folder:
        records = list(of_records(Path(folder)))
    devices = list(of_devices())
    shown = [
        [cost.way, f"{1e6 * cost.seconds:.2f}", f"{cost.size:.0f}", f"{cost.stored:.0f}"]
        for cost in [*records, *devices]
    ]
    show("Measured, for each record or device", shown, ["", "core µs", "bytes moved", "bytes stored"])
    header = ["", "core hours", f"servers of {CORES} cores", "terabytes moved", "gigabytes stored"]
    show("A trillion records", [*map(needed(10**12), records)], header)
    show("A billion devices, one report each", [*map(needed(10**9), devices)], header)
    print(f"\nServers: to finish in a day (files, Spark, warehouse), or {100 * AT_MOST:.0f} % busy over {DAYS} days.")


def needed(count: int) -> Callable[[Cost], list[str]]:
    """The line for so many records or devices."""

    def line(cost: Cost) -> list[str]:
        hours = count * cost.seconds / 3600
        servers = hours / CORES / (24 if cost.at_once else 24 * DAYS * AT_MOST)
        moved, stored = count * cost.size / 1e12, count * cost.stored / 1e9
        return [cost.way, f"{hours:,.0f}", f"{math.ceil(servers):,}", f"{moved:,.1f}", f"{stored:,.0f}"]

    return line


def of_records(folder: Path) -> Iterator[Cost]:
    """What a record costs in each way."""
    tables = {count: pa.Table.from_batches(checkout(count, chunk=BATCH)) for count in (SMALL, LARGE)}
    files = {count: folder / str(count) / "records.parquet" for count in tables}
    for count, file in files.items():
        file.parent.mkdir()
        pq.write_table(tables[count], file, row_group_size=100_000)
    size = files[LARGE].stat().st_size / LARGE
    yield Cost("files, `foldaway run`", apart(lambda n: fa.fold_files([str(files[n])], PLAN)), size)
    yield Cost("warehouse, rows by `fold_query` (DuckDB)", apart(lambda n: queried(files[n])), size)
    yield Cost("Spark, `local[2]`", apart(lambda n: on_spark(files[n])), size)
    yield from sent(folder, list(islice(tables[LARGE].to_batches(BATCH), 20)))
    yield Cost("broker, `foldaway consume` (NATS, Arrow)", *consumed(tables[LARGE], folder), at_once=False)


def apart(run: Callable[[int], object]) -> float:
    """Core seconds of a record: a large run less a small one, after a first that is not counted."""
    run(SMALL)
    spent = {}
    for count in (SMALL, LARGE):
        before = of_family()
        run(count)
        spent[count] = of_family() - before
    return (spent[LARGE] - spent[SMALL]) / (LARGE - SMALL)


def of_family() -> float:
    """Processor seconds of this process and of those that it has started."""
    mine = psutil.Process()
    return sum(sum(process.cpu_times()[:4]) for process in [mine, *mine.children(recursive=True)])


def queried(file: Path) -> None:
    import duckdb

    with closing(duckdb.connect()) as connection:
        fa.fold_query(connection, f"select * from read_parquet('{file}')", PLAN, label="all")


def on_spark(file: Path) -> None:
    import sparks
    from foldaway.engines import spark

    spark.fold(sparks.session().read.parquet(str(file)), PLAN)


def sent(folder: Path, batches: Sequence[pa.RecordBatch]) -> Iterator[Cost]:
    """What a record costs the collecting service."""
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    with Served(folder / "served", None, "--quiet") as server:
        token, process = create(server), psutil.Process(server.pid)
        for name, kind, bodies in (("Arrow", ARROW, [*map(arrow, tables)]), ("NDJSON", NDJSON, [*map(ndjson, tables)])):
            headers = {"Authorization": f"Bearer {token}", "Content-Type": kind, "Foldaway-Producer": name}
            with httpx.Client(base_url=server.url, headers=headers, timeout=60) as client:
                post(client, bodies[0], 1)
                before = sum(process.cpu_times()[:2])
                for sequence, body in enumerate(bodies, 2):
                    post(client, body, sequence)
                seconds = sum(process.cpu_times()[:2]) - before
            count = BATCH * len(bodies)
            yield Cost(f"service, {name} in batches", seconds / count, sum(map(len, bodies)) / count, at_once=False)


def consumed(table: pa.Table, folder: Path) -> tuple[float, float]:
    """Core seconds and bytes of a record that a consumer takes from a broker."""
    from bodies import as_arrow
    from brokers import KINDS, Sent, missing
    from consuming import consume

    if why := missing("nats"):
        raise SystemExit(f"This benchmark needs a broker: {why}.")
    server, bodies = KINDS["nats"](), [as_arrow(table.slice(k * BATCH, BATCH)) for k in range(9)]
    try:
        server.start()
        server.create(PLAN.name)
        seconds = 0.0
        for k, body in enumerate(bodies):
            server.send(PLAN.name, [Sent(body)])
            before = time.process_time()
            consume(server, PLAN, folder / "stream", delete=True)
            seconds += time.process_time() - before if k else 0.0
    finally:
        server.remove()
    return seconds / BATCH / (len(bodies) - 1), len(bodies[0]) / BATCH


def of_devices() -> Iterator[Cost]:
    """What a device costs its coordinator that enrols and sends one report."""
    for mode in ("sums", "one-message"):
        with crowd(mode) as (server, token, phases):
            data, port = Path(server.data), int(server.url.rpartition(":")[2])
            before, seconds, size = stored(data), 0.0, 0
            for kind, bodies in phases:
                its = load(port, server.pid, f"/v1/trials/{mode}/{kind}", token, bodies)
                seconds, size = seconds + its.served, size + sum(map(len, bodies)) + HEAD * len(bodies)
            kept = (stored(data) - before) / DEVICES
        yield Cost(f"devices, mode {mode}", seconds / DEVICES, size / DEVICES, kept, at_once=False)


def stored(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


if __name__ == "__main__":
    main()
