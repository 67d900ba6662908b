"""`foldaway consume` killed with SIGKILL over and over, and a count of every message afterwards.

Every message is a batch of `crashing`, with a digit of its own in the tallies: the sum of an outcome, to the base 4,
says how often each was counted.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

import foldaway as fa
from brokers import Sent, Server
from consuming import FORMS, stored_in
from crashing import COHORT, PER_PRODUCER, PRODUCERS, batch, digits, largest_difference, plan_of
from foldaway.account.stream_file import StreamFile, has_ended
from foldaway.keeping.saved import Saved
from foldaway.keeping.secret import read_or_make_key
from foldaway.sources.brokers.broker import parse
from foldaway.sources.brokers.consumer import Consumer, ConsumerOptions
from servers import Nursery

MOST_BATCHES = PRODUCERS * PER_PRODUCER


@dataclass
class Tale:
    """What happened.

    Attributes:
        kills: How often the consumer was killed.
        batches: Messages that were to be counted.
        states: Different states seen in the store after a kill.
        step: The fewest records between two of them.
        counted: How many messages were counted how often; only 1 is right.
        apart: The largest relative difference of an effect, or of its error, to the fold of all records in one pass.
        held: Messages at the broker at the end; where it cannot delete, those not acknowledged.
    """

    kills: int = 0
    batches: int = 0
    records: int = 0
    states: int = 0
    step: int = 0
    counted: Counter[int] = field(default_factory=Counter)
    apart: float = 0.0
    held: int = 0
    seconds: float = 0.0


def table(index: int) -> pa.Table:
    """The records of a message: always the same ones."""
    return batch(index // PER_PRODUCER, index % PER_PRODUCER + 1)


def message(index: int) -> Sent:
    kind, write = FORMS[index % len(FORMS)]
    return Sent(write(table(index)), kind, index % 4)


def kill_often(
    server: Server, nursery: Nursery, folder: Path, name: str, kills: int, rng: random.Random, batches: int
) -> Tale:
    """One trial through a broker, its consumer killed so many times."""
    began = time.monotonic()
    plan = plan_of(name)
    server.create(name)
    plan.save(folder / "plan.toml")
    store = folder / "store"
    key = read_or_make_key(folder / "trial.key")
    words = ["consume", server.address(name), str(folder / "plan.toml"), "--store", str(store), "--json", "--delete"]
    words += ["--key", str(folder / "trial.key")]
    written: list[Saved] = []
    edges = [batches * i // (2 * kills) for i in range(2 * kills + 1)]
    for turn in range(kills):
        server.send(name, [message(i) for i in range(edges[2 * turn], edges[2 * turn + 1])])
        before = _mark(store)
        pid = nursery.start(words, folder / "out", folder / "err")
        server.send(name, [message(i) for i in range(edges[2 * turn + 1], edges[2 * turn + 2])])
        if rng.random() < 0.3:  # anywhere, while it starts too
            time.sleep(rng.uniform(0, 0.5))
        else:  # about when it writes, acknowledges and deletes
            deadline = time.monotonic() + 20
            while _mark(store) == before and time.monotonic() < deadline:
                time.sleep(0.001)
            time.sleep(rng.choice([0, rng.uniform(0, 0.02), rng.uniform(0, 0.3)]))
        _end(pid)
        stored = stored_in(store, key)
        if stored is not None and (not written or stored.state != written[-1].state):
            written.append(stored)
    # What has ended is told in rounded numbers, which cannot say how often each message was counted: so the last
    # consumer runs here, where its tallies can be seen before they go. Others are told
    # no effect of a digit, which few records have.
    where = parse(server.address(name))
    with StreamFile(store, plan, where.stream, key=key) as opened:
        closing = Consumer(
            where.broker(name), opened, options=ConsumerOptions(delete=True, end=True, without_effects=True)
        )
        effects = closing.run().effects()
    return _judge(server, plan, store, effects, written, kills, batches, began)


def _mark(store: Path) -> int:
    """Another number for every state."""
    try:
        return (store / "state").stat().st_ino
    except FileNotFoundError:
        return 0


def _end(pid: int, how: signal.Signals = signal.SIGKILL, seconds: float = 60) -> None:
    os.kill(pid, how)
    _wait(pid, seconds)


def _wait(pid: int, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while _runs(pid):
        assert time.monotonic() < deadline
        time.sleep(0.002)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _judge(
    server: Server,
    plan: fa.Plan,
    store: Path,
    effects: fa.Effects,
    written: Sequence[Saved],
    kills: int,
    batches: int,
    began: float,
) -> Tale:
    said = (store.parent / "err").read_text()
    assert "error" not in said, said
    assert has_ended(store)
    whole = pa.concat_tables([table(i) for i in range(batches)])
    one_pass = fa.Trial(plan)
    one_pass.fold(whole)
    counted, n = digits(effects), sum(effects.counts.values())
    assert not any(counted[batches:])
    assert n == whole.num_rows, f"{n} records, not {whole.num_rows}: {Counter(counted[:batches])}"
    sizes = [0, *(fa.Trial.loads(each.state, plan).n for each in written)]
    step = min(after - before for before, after in pairwise(sizes)) if written else 0
    assert not written or step >= COHORT
    return Tale(
        kills,
        batches,
        whole.num_rows,
        len(written),
        step,
        Counter(counted[:batches]),
        largest_difference(effects, one_pass.effects()),
        server.held(plan.name),
        time.monotonic() - began,
    )
