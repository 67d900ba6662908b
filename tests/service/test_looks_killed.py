"""Planned looks while servers are killed: what anybody was told of a look stays, and no look is taken twice."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pytest

import foldaway as fa
from foldaway.client import Client
from foldaway.effects.looks import design_of
from foldaway.effects.looks_taken import Look
from foldaway.errors import ServerError
from postgres import Postgres
from servers import Nursery, Producer, Server, check, wait_for
from sizes import mostly_slow

pytestmark = pytest.mark.once

SIZE = 100
"""Records of a batch, which is a cohort: each makes the next look due."""

REST = 4
"""Batches that no kill follows."""


def plan_of(batches: int) -> fa.Plan:
    return fa.Plan(
        name="looked-at",
        arm="arm",
        arms={"control": 0.5, "treatment": 0.5},
        outcomes=["y"],
        privacy=fa.Privacy(cohort=SIZE),
        looks={"information": {"units": SIZE * batches}, "at": [(i + 1) / batches for i in range(batches)]},
    )


def batch(number: int) -> pa.Table:
    """Records without an effect, so that every look goes on."""
    y = [float((i // 2 * number) % 17) for i in range(SIZE)]
    return pa.table({"arm": ["control", "treatment"] * (SIZE // 2), "y": y})


class Answer(NamedTuple):
    """What somebody was told, and when they asked and had it."""

    asked: float
    had: float
    exact: bool
    looks: tuple[Look, ...]


class Reader(threading.Thread):
    """Asks one server again and again, for exact effects and for those that others are told.

    Attributes:
        answers: What it was told.
        done: Ends it.
    """

    def __init__(self, url: str, admin: str, trial: str) -> None:
        super().__init__(daemon=True)
        self._client, self._trial = Client(url, admin, patience=0.0), trial
        self.answers = list[Answer]()
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.is_set():
            for exact in (True, False):
                asked = time.monotonic()
                try:
                    answer = self._client.effects(self._trial, exact=exact)
                except ServerError:  # it was killed, or it is too early, or too late for exact effects
                    time.sleep(0.005)
                    continue
                self.answers.append(Answer(asked, time.monotonic(), exact, looks_of(answer)))


def looks_of(answer: dict[str, Any]) -> tuple[Look, ...]:
    return tuple(fa.Effects.from_json(msgspec.json.encode(answer["effects"])).looks)


def told(looks: Sequence[Look]) -> tuple[Look, ...]:
    return tuple(look.told() for look in looks)


def wrong(plan: fa.Plan, answers: Sequence[Answer], final: tuple[Look, ...]) -> list[str]:
    """What must not be, a sentence each."""
    assert plan.looks is not None
    taken = max((each.looks for each in answers if each.exact), key=len)
    found = []
    final = told(final)  # at the end others are told what a look came to
    for exact, all_looks in ((True, taken), (False, final)):
        some = sorted((each for each in answers if each.exact == exact), key=lambda each: each.had)
        if any((each.looks if exact else told(each.looks)) != all_looks[: len(each.looks)] for each in some):
            found.append("a look that was told has changed")
        for each in some:
            if any(len(before.looks) > len(each.looks) for before in some if before.had < each.asked):
                found.append("a look that was told is gone")
    if told(taken) != final[: len(taken)]:
        found.append("a look that was told is not in the final effects")
    reached = [0.0, *(look.fraction for look in taken)]
    for before, look in zip(reached, taken, strict=False):
        if not any(before < at <= look.fraction for at in plan.looks.at):
            found.append("a look was taken twice")
        if look.spent != design_of(plan).spent(look.fraction):
            found.append("a look has not spent what its information says")
    return found


def kill_often(servers: Sequence[Server], seed: int, kills: int) -> tuple[fa.Plan, list[Reader], tuple[Look, ...]]:
    """One trial, a server of which is killed so many times when a look is due, and once more when it ends."""
    rng, plan = random.Random(seed), plan_of(kills + REST)
    for server in servers:
        server.start()
    admin, urls = servers[0].admin, [server.url for server in servers]
    with Client(urls[0], admin) as client:
        token = client.create(plan.to_toml())["ingest_token"]
    producer = Producer("till", urls, token, plan.name, kills + REST, batch, pause=0.1, seed=seed)
    readers = [Reader(url, admin, plan.name) for url in urls]
    for thread in (*readers, producer):
        thread.start()
    for turn in range(kills):
        due = producer.receipts
        wait_for(lambda: producer.receipts > due or not producer.is_alive(), 30, "a batch")  # noqa: B023
        time.sleep(rng.uniform(0, 0.1))
        _kill(servers[turn % len(servers)])
    wait_for(lambda: not producer.is_alive(), 60, "the last batch")
    check([producer])
    ending = threading.Thread(target=_end, args=(urls[0], admin, plan.name))
    ending.start()
    time.sleep(rng.uniform(0, 0.1))
    _kill(servers[0])
    ending.join()
    with Client(urls[-1], admin) as client:
        final = looks_of(client.end(plan.name))
    for reader in readers:
        reader.done.set()
    for reader in readers:
        reader.join()
    return plan, readers, final


def _kill(server: Server) -> None:
    server.kill()
    server.start()


def _end(url: str, admin: str, trial: str) -> None:
    with Client(url, admin, patience=0.0) as client, suppress(ServerError):
        client.end(trial)


QUICK = [("folder", 4, 1), ("database", 4, 1)]
LONG = [(where, 16, seed) for where in ("folder", "database") for seed in (2, 3, 4)]


@pytest.mark.parametrize(("where", "kills", "seed"), mostly_slow([*QUICK, *LONG], *QUICK))
def test_a_look_that_was_told_stays_whatever_is_killed(
    request: pytest.FixtureRequest, served_from: Nursery, tmp_path: Path, where: str, kills: int, seed: int
) -> None:
    postgres: Postgres | None = request.getfixturevalue("postgres") if where == "database" else None
    address = None if postgres is None else postgres.database()
    shards = ("first",) if address is None else ("first", "second")
    servers = [Server(tmp_path / each, database=address, shard=each, nursery=served_from) for each in shards]
    try:
        plan, readers, final = kill_often(servers, seed, kills)
    finally:
        for server in servers:
            server.kill()
    answers = [answer for reader in readers for answer in reader.answers]
    assert wrong(plan, answers, final) == []
    assert len(final) > kills / 2
