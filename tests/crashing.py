"""Servers and databases killed under load, and a count of every batch afterwards.

Every batch has a digit of its own: one of its records carries 4^i in one of the outcomes `bit0`, `bit1` …, and all
others carry 0 there. The sum of such an outcome, written to the base 4, says how often each batch was counted. The sums
are read from the exact answer at the end: the difference in means, times the records of the arm.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

import foldaway as fa
from foldaway.client import Client
from postgres import Postgres
from servers import Producer, Server, check
from trials import known

DIGITS = 16  # to an outcome; 4^16 is far from where a sum of doubles loses units
PER_PRODUCER = 64
PRODUCERS = 4
COLUMNS = PRODUCERS * PER_PRODUCER // DIGITS
COHORT = 100


@dataclass
class Tale:
    """What happened.

    Attributes:
        killed: How often each part was killed.
        batches: Batches that were to be counted.
        sessions: Times that a producer began, or began again.
        counted: How many batches were counted how often; only 1 is right.
        apart: The largest relative difference of an effect, or of its error, to the fold of all records in one pass.
    """

    killed: Counter[str] = field(default_factory=Counter)
    batches: int = 0
    records: int = 0
    sessions: int = 0
    counted: Counter[int] = field(default_factory=Counter)
    apart: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: Tale) -> Tale:
        return Tale(
            self.killed + other.killed,
            self.batches + other.batches,
            self.records + other.records,
            self.sessions + other.sessions,
            self.counted + other.counted,
            max(self.apart, other.apart),
            self.seconds + other.seconds,
        )

    @property
    def kills(self) -> int:
        return self.killed.total()


def plan_of(name: str) -> fa.Plan:
    return fa.Plan(
        name=name,
        arm="arm",
        arms={"control": 0.5, "treatment": 0.5},
        outcomes=["y", *(f"bit{column}" for column in range(COLUMNS))],
        covariates=["x"],
        moments=fa.Moments(estimators=["difference", "regression"]),
        privacy=fa.Privacy(cohort=COHORT),
    )


def batch(producer: int, number: int) -> pa.Table:
    """The batch of a number: always the same one."""
    rng = np.random.default_rng([producer, number])
    index = producer * PER_PRODUCER + number - 1
    bits = np.zeros((COLUMNS, 2 * rng.integers(1, 30)))
    bits[index // DIGITS, 1] = 4.0 ** (index % DIGITS)
    return _table(rng, bits)


def filling(number: int) -> pa.Table:
    """A cohort of records without a digit, to make durable what is pending."""
    return _table(np.random.default_rng([PRODUCERS, number]), np.zeros((COLUMNS, COHORT)))


def _table(rng: np.random.Generator, bits: Any) -> pa.Table:
    n = bits.shape[1]
    x = rng.normal(size=n)
    columns = {"arm": np.tile(["control", "treatment"], n // 2), "x": x, "y": x + rng.normal(size=n)}
    return pa.table({**columns, **{f"bit{column}": values for column, values in enumerate(bits)}})


def digits(effects: fa.Effects) -> list[int]:
    """How often each batch was counted."""
    found = []
    for column in range(COLUMNS):
        row = effects.filter(outcome=f"bit{column}", estimator="difference")[0]
        total = row.estimate * row.n_arm
        assert abs(total - round(total)) < 0.01
        found += [round(total) // 4**i % 4 for i in range(DIGITS)]
    return found


def largest_difference(found: fa.Effects, expected: fa.Effects) -> float:
    """Between estimates, and between errors: relative, or in units of the error where an effect is near zero."""
    assert len(found) == len(expected) > 0
    worst = 0.0
    for a, b in zip(found, expected, strict=True):
        assert (a.outcome, a.estimator, a.se_kind) == (b.outcome, b.estimator, b.se_kind)
        assert (a.n_arm, a.n_control) == (b.n_arm, b.n_control)
        if b.std_error is None:  # an outcome whose digits are not in use: 0, without an error
            assert a.estimate == b.estimate == 0
            assert a.std_error is None
            continue
        (effect, error), (other, its_error) = ((known(row.estimate), known(row.std_error)) for row in (a, b))
        worst = max(worst, abs(effect - other) / max(abs(other), its_error), abs(error - its_error) / its_error)
    return worst


def crash(
    servers: Sequence[Server],
    database: Postgres | None,
    admin: str,
    kills: int,
    rng: random.Random,
    name: str,
    batches: int = PER_PRODUCER,
) -> Tale:
    """One trial under load, with up to so many kills while batches are under way."""
    tale, began = Tale(), time.monotonic()
    plan = plan_of(name)
    urls = [server.url for server in servers]
    tokens = _create(urls[0], admin, plan)
    producers = [
        Producer(
            f"producer-{p}",
            urls,
            tokens["ingest_token"],
            name,
            batches,
            lambda number, p=p: batch(p, number),  # type: ignore[misc]
            pause=0.02,
            breaks=0.03,
            seed=rng.randrange(2**32),
        )
        for p in range(PRODUCERS)
    ]
    for producer in producers:
        producer.start()
    turn = 0
    while tale.kills < kills:
        _await_load(producers)
        time.sleep(rng.uniform(0, 0.3))
        check(producers)
        if all(producer.all_sent for producer in producers):
            break
        tale.killed[_kill_and_restart(turn, servers, database, rng)] += 1
        turn += 1
    for server in servers:
        server.wait()
    fillings = _fill_up(producers, urls, tokens["ingest_token"], name)
    check(producers)
    return _judge(tale, producers, batches, fillings, plan, urls[0], admin, began)


def _await_load(producers: Sequence[Producer], seconds: float = 5.0) -> None:
    """Until another batch has come through, so that kills do not follow each other while nothing is under way."""
    before, deadline = sum(producer.receipts for producer in producers), time.monotonic() + seconds
    while sum(producer.receipts for producer in producers) == before and time.monotonic() < deadline:
        if all(producer.all_sent or producer.fault for producer in producers):
            return
        time.sleep(0.005)


def _create(url: str, admin: str, plan: fa.Plan) -> dict[str, Any]:
    with Client(url, admin) as client:
        return client.create(plan.to_toml())


def _kill_and_restart(turn: int, servers: Sequence[Server], database: Postgres | None, rng: random.Random) -> str:
    """Kill the next in turn, and bring it back after a while; what it was."""
    parts: list[Server | Postgres] = [*servers] if database is None else [*servers, database]
    part = parts[turn % len(parts)]
    part.kill()
    time.sleep(rng.choice([0, rng.uniform(0, 0.2)]))
    if isinstance(part, Postgres):
        part.start()
        return "database"
    # One time in five the next kill may come while it starts.
    part.start(wait=rng.random() < 0.8)
    return "server"


def _fill_up(producers: Sequence[Producer], urls: Sequence[str], token: str, trial: str) -> list[int]:
    """Send whole cohorts to every server until what the producers have sent is durable; how many to each."""
    clients = [Client(url, token, producer=f"filling-{i}") for i, url in enumerate(urls)]
    sent = [0 for _ in urls]
    deadline = time.monotonic() + 120
    while any(producer.is_alive() for producer in producers):
        assert time.monotonic() < deadline, "the producers' batches do not become durable"
        if all(producer.all_sent or producer.fault for producer in producers):
            for i, client in enumerate(clients):
                sent[i] += 1
                receipt = client.send(trial, filling(1000 * i + sent[i]))
                assert receipt["durable"] == sent[i]  # a whole cohort never waits
        time.sleep(0.2)
    for client in clients:
        client.close()
    return sent


def _judge(
    tale: Tale,
    producers: Sequence[Producer],
    batches: int,
    fillings: Sequence[int],
    plan: fa.Plan,
    url: str,
    admin: str,
    began: float,
) -> Tale:
    with Client(url, admin) as client:
        answer = client.end(plan.name, exact=True, without_effects=True)  # others see none: few records have a digit
    effects = fa.Effects.from_json(msgspec.json.encode(answer["effects"]))
    tables = [batch(p, number) for p in range(PRODUCERS) for number in range(1, batches + 1)]
    tables += [filling(1000 * i + number) for i, count in enumerate(fillings) for number in range(1, count + 1)]
    whole = pa.concat_tables(tables)
    one_pass = fa.Trial(plan)
    one_pass.fold(whole)
    counted = digits(effects)
    for p in range(PRODUCERS):
        mine = counted[p * PER_PRODUCER : (p + 1) * PER_PRODUCER]
        assert not any(mine[batches:])
        tale.counted.update(mine[:batches])
    assert answer["fingerprint"] == plan.fingerprint
    assert answer["left_out"] == 0
    assert answer["records"] == whole.num_rows, f"{answer['records']} records, not {whole.num_rows}: {tale.counted}"
    tale.apart = largest_difference(effects, one_pass.effects())
    tale.batches = PRODUCERS * batches
    tale.records = whole.num_rows
    tale.sessions = sum(producer.begun for producer in producers)
    tale.seconds = time.monotonic() - began
    return tale
