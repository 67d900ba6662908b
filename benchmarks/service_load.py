"""The collecting service under load, with durable answers; beside it the same records kept by PostgreSQL's COPY.

Both write to the same disk, and both wait for it: SQLite with `synchronous = FULL`, PostgreSQL with `fsync` and
`synchronous_commit` on.
"""

from __future__ import annotations

import io
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import numpy as np
import psutil
import psycopg
import pyarrow as pa
import pyarrow.csv
from measure import show

from foldaway.simulation.datasets import checkout
from foldaway.simulation.demo import PLAN
from foldaway.sources.formats.body import ARROW, NDJSON

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import postgres as test_postgres
from served import Served

BATCH = 50_000
BODIES = 20  # different ones, sent again and again under new numbers
ARROW_RECORDS = 50_000_000
NDJSON_RECORDS = 5_000_000
COPY_RECORDS = 5_000_000

COLUMNS = "variant text, revenue float8, converted int8, revenue_before float8, country text, user_id text"


def main() -> None:
    """Print the table; `python -m benchmarks service_load` runs a few minutes."""
    tables = [pa.Table.from_batches([batch]) for batch in checkout(BATCH * BODIES, chunk=BATCH)]
    rows = []
    with tempfile.TemporaryDirectory() as folder, Served(Path(folder), None, "--quiet") as server:
        token = create(server)
        for label, kind, bodies, records in (
            ("foldaway, Arrow", ARROW, [arrow(table) for table in tables], ARROW_RECORDS),
            ("foldaway, NDJSON", NDJSON, [ndjson(table) for table in tables[:4]], NDJSON_RECORDS),
        ):
            rows.append(send(server, token, label, kind, bodies, records))
        rows.append(copy(tables, Path(folder)))
    kept = float(rows[-1][1].replace(",", ""))
    cells = [[*row, f"{float(row[1].replace(',', '')) / kept:.1f}"] for row in rows]
    header = ["", "records/s", "median ms", "99 % ms", "memory before", "after", "× COPY"]
    show(f"One producer, batches of {BATCH:,}, every answer durable", cells, header)


def create(server: Served) -> str:
    headers = {"Authorization": f"Bearer {server.admin}", "Content-Type": "application/json"}
    made = httpx.post(f"{server.url}/v1/trials", content=PLAN.to_json(), headers=headers, timeout=60).json()
    return str(made["ingest_token"])


def send(server: Served, token: str, label: str, kind: str, bodies: list[bytes], records: int) -> list[str]:
    """Send until so many records are durable; speed, latencies, and the server's memory."""
    process = psutil.Process(server.pid)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": kind, "Foldaway-Producer": kind.split("/")[-1]}
    times: list[float] = []
    with httpx.Client(base_url=server.url, headers=headers, timeout=60) as client:
        post(client, bodies[0], 1)  # the first is not timed
        before = process.memory_info().rss
        start = time.perf_counter()
        for sequence in range(2, records // BATCH + 2):
            began = time.perf_counter()
            durable = post(client, bodies[sequence % len(bodies)], sequence)
            times.append(time.perf_counter() - began)
            assert durable == sequence
        seconds = time.perf_counter() - start
    after = process.memory_info().rss
    speed = len(times) * BATCH / seconds
    median, late = np.quantile(times, [0.5, 0.99]) * 1000
    return [
        label,
        f"{speed:,.0f}",
        f"{median:.0f}",
        f"{late:.0f}",
        f"{before / 2**20:.0f} MB",
        f"{after / 2**20:.0f} MB",
    ]


def post(client: httpx.Client, body: bytes, sequence: int) -> int:
    answer = client.post(f"/v1/trials/{PLAN.name}/records", content=body, headers={"Foldaway-Sequence": str(sequence)})
    answer.raise_for_status()
    return int(answer.json()["durable"])


def copy(tables: list[pa.Table], folder: Path) -> list[str]:
    """Keep everything: the same records by COPY, a transaction per batch."""
    programs = test_postgres.programs()
    if programs is None:
        raise SystemExit(f"PostgreSQL is not installed; {test_postgres.INSTALL} gets it.")
    bodies = [csv(table) for table in tables]
    times: list[float] = []
    for server in started(programs, folder):
        with psycopg.connect(server.database()) as connection:
            connection.execute(f"create table records ({COLUMNS})")
            connection.commit()
            start = time.perf_counter()
            for batch in range(COPY_RECORDS // BATCH):
                began = time.perf_counter()
                with connection.cursor() as cursor, cursor.copy("copy records from stdin (format csv)") as out:
                    out.write(bodies[batch % len(bodies)])
                connection.commit()
                times.append(time.perf_counter() - began)
            seconds = time.perf_counter() - start
    median, late = np.quantile(times, [0.5, 0.99]) * 1000
    return ["PostgreSQL COPY, all kept", f"{len(times) * BATCH / seconds:,.0f}", f"{median:.0f}", f"{late:.0f}", "", ""]


def started(programs: Path, folder: Path) -> Iterator[test_postgres.Postgres]:
    folder.chmod(0o755)  # PostgreSQL runs as somebody else
    server = test_postgres.Postgres(programs, folder)
    try:
        server.start()
        yield server
    finally:
        server.remove()


def arrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def ndjson(table: pa.Table) -> bytes:
    return msgspec.json.Encoder().encode_lines(table.to_pylist())


def csv(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pyarrow.csv.write_csv(table, out, pyarrow.csv.WriteOptions(include_header=False))
    return out.getvalue()


if __name__ == "__main__":
    main()
