"""Whatever is killed, and whenever: what was acknowledged as durable is in the tallies exactly once (promise P4)."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

import foldaway as fa
from crashing import COLUMNS, PER_PRODUCER, PRODUCERS, Tale, batch, crash, digits, plan_of
from postgres import Postgres
from servers import Nursery, Server
from sizes import mostly_slow

pytestmark = pytest.mark.once

KILLS = 9


def crash_often(servers: list[Server], database: Postgres | None, seed: int, kills: int = KILLS) -> Tale:
    """Trials, one after the other, until there were enough kills."""
    rng = random.Random(seed)
    tale = Tale()
    try:
        for server in servers:
            server.start()
        while tale.kills < kills:
            name = f"crash-{tale.batches}"
            tale += crash(servers, database, servers[0].admin, kills - tale.kills, rng, name)
    finally:
        for server in servers:
            server.kill()
    return tale


def exactly_once(tale: Tale) -> bool:
    return tale.counted == Counter({1: tale.batches}) and tale.apart < 1e-9


@pytest.mark.parametrize("kills", mostly_slow([4, KILLS], 4))
def test_a_server_on_sqlite(tmp_path: Path, served_from: Nursery, kills: int) -> None:
    tale = crash_often([Server(tmp_path, nursery=served_from)], None, 1, kills)
    assert exactly_once(tale), tale
    assert tale.killed == Counter(server=kills)


@pytest.mark.slow
def test_two_servers_on_one_postgresql(tmp_path: Path, served_from: Nursery, postgres: Postgres) -> None:
    address = postgres.database()
    servers = [
        Server(tmp_path / shard, database=address, shard=shard, nursery=served_from) for shard in ("first", "second")
    ]
    tale = crash_often(servers, postgres, 2)
    assert exactly_once(tale), tale
    assert tale.killed == Counter(server=KILLS - KILLS // 3, database=KILLS // 3)


@pytest.mark.slow
def test_a_server_started_as_anybody_would_is_killed_and_goes_on(tmp_path: Path) -> None:
    """The other tests fork their servers from a process that is loaded already."""
    server = Server(tmp_path)
    try:
        server.start()
        tale = crash([server], None, server.admin, 1, random.Random(3), "cold", batches=10)
    finally:
        server.kill()
    assert exactly_once(tale), tale
    assert "Traceback" not in server.err.read_text()


@pytest.mark.parametrize("change", ["lost", "doubled"])
def test_a_lost_or_doubled_batch_shows(change: str) -> None:
    sent = [(p, number) for p in range(PRODUCERS) for number in range(1, PER_PRODUCER + 1)]
    sent = [one for one in sent if one != (2, 17)] if change == "lost" else [*sent, (2, 17)]
    trial = fa.Trial(plan_of("seen"))
    trial.fold(pa.concat_tables([batch(p, number) for p, number in sent]))
    counted = digits(trial.effects())
    assert len(counted) == PRODUCERS * PER_PRODUCER == 16 * COLUMNS
    assert [index for index, times in enumerate(counted) if times != 1] == [2 * PER_PRODUCER + 16]
    assert counted[2 * PER_PRODUCER + 16] == (0 if change == "lost" else 2)
