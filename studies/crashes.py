"""Is every batch counted exactly once, whatever is killed, and whenever?

Servers and databases are killed with SIGKILL at random moments under load, and started again. Every batch has a digit
of its own in the final tallies, which says how often it was counted.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

# One thread for linear algebra: producers, servers and databases share the cores.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from studies import findings  # noqa: E402
from studies.findings import Findings, options_of, publish  # noqa: E402

NAME = "crashes"
PLACES = {"SQLite, one server": 1, "PostgreSQL, two servers": 2}


def main(arguments: Sequence[str] = ()) -> None:
    """Run the study."""
    options = options_of(NAME, arguments, kills=200, seed=1)
    rows, right = [], True
    for place, count in PLACES.items():
        tale = _crash_often(place, count, options.kills, options.seed)
        wrong = {times: batches for times, batches in tale.counted.items() if times != 1}
        right = right and not wrong and tale.apart < 1e-9
        rows.append(
            [
                place,
                str(tale.killed["server"]),
                str(tale.killed["database"]),
                f"{tale.sessions:,}",
                f"{tale.records:,}",
                f"{tale.batches:,}",
                f"{tale.counted[1]:,}",
                f"{tale.counted[0]:,}",
                f"{sum(batches for times, batches in wrong.items() if times > 1):,}",
                f"{tale.apart:.0e}",
            ]
        )
    if not right:
        sys.exit(f"A batch was lost or counted twice, or an effect is not that of one pass: {rows}")
    publish(_findings(rows), NAME, options)
    if options.write:
        page = findings.PAGES / f"{NAME}.md"
        same = "the seed makes it the same in every run."
        page.write_text(page.read_text("utf-8").replace(same, "the moments differ from run to run."), encoding="utf-8")


def _crash_often(place: str, count: int, kills: int, seed: int):  # type: ignore[no-untyped-def]
    from crashing import Tale, crash
    from postgres import Postgres, programs
    from servers import Nursery, Server

    rng = random.Random(f"{seed} {place}")
    database = None
    if place.startswith("PostgreSQL"):
        found = programs()
        if found is None:
            sys.exit("This study needs PostgreSQL.")
        database = Postgres(found)
        database.start()
    tale = Tale()
    with tempfile.TemporaryDirectory(prefix="crashes-") as folder, Nursery() as nursery:
        address = None if database is None else database.database()
        servers = [
            Server(Path(folder) / f"server-{i}", database=address, shard=f"server-{i}", nursery=nursery)
            for i in range(count)
        ]
        try:
            for server in servers:
                server.start()
            while tale.kills < kills:
                name = f"crash-{tale.batches}"
                tale += crash(servers, database, servers[0].admin, kills - tale.kills, rng, name)
                print(
                    f"{place}: {tale.kills} kills, {tale.batches:,} batches, counted {dict(tale.counted)}, "
                    f"{tale.seconds:.0f} s",
                    file=sys.stderr,
                    flush=True,
                )
        finally:
            for server in servers:
                server.kill()
            if database is not None:
                database.remove()
    return tale


def _findings(rows: Sequence[Sequence[str]]) -> Findings:
    return Findings(
        "Crashes",
        """Four producers send numbered batches of 2 to 58 records, each up to once in 20 milliseconds, with a cohort of
        100. Meanwhile the servers, and PostgreSQL with all of its processes, are killed with SIGKILL in turn, at random
        moments, and started again. SQLite runs inside the server and dies with it. Some kills come while another part
        is starting. The servers are forked from a process that has already loaded foldaway, so that they are back
        within a fraction of a second; they skip the rehearsal, and the restart after which freed memory is overwritten.
        The producers also stop at random and continue after the last durable batch; if there are two servers, at either
        of them.

        Every batch has a digit of its own: one of its records has 4^i in one of the outcomes, where all others have 0.
        In base 4, the sum of that outcome, which the study reads from the final answer, says how often each batch was
        counted. A trial has 256 batches. The study runs as many trials as the kills take, and ends each of them.

        “Difference” is the largest difference between an effect or a standard error and that of all records folded in
        one pass, relative to the effect, or to its error where that is larger.""",
        [
            "database",
            "servers killed",
            "databases killed",
            "producers begun",
            "records",
            "batches",
            "counted once",
            "lost",
            "counted again",
            "difference",
        ],
        rows,
        """Every batch that a producer sent is in the final tallies once. A test checks the digits themselves: a batch
        that is left out or folded twice on purpose shows as 0 or 2 (`tests/service/test_exactly_once.py`).""",
    )
