"""Trials sent through brokers, for the tests of consumers: records, messages in every form, and a consumer on them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import foldaway as fa
from bodies import as_arrow, as_json, as_ndjson
from brokers import Sent, Server
from foldaway.account.account import Durable
from foldaway.account.stream_file import STATE, StreamFile
from foldaway.keeping.saved import Saved, StreamPositions, load
from foldaway.sources.brokers.broker import Broker, parse
from foldaway.sources.brokers.consumer import Consumer, ConsumerOptions, ConsumerProgress
from foldaway.sources.formats.body import ARROW, JSON, NDJSON
from plans import in_parts

KEY = bytes(range(16))


def fresh_name() -> str:
    """A name for a trial and its stream that no other test has: all share one broker."""
    return f"t{secrets.token_hex(6)}"


# A stream fixes its coefficients at its first write. With those of the plan it is the same however it is cut.
COEFFICIENTS = {"center": {"x": 0.1}, "slopes": {"y": {"x": 0.9}}}


def plan_of(name: str, **settings: Any) -> fa.Plan:
    if "moments" not in settings and settings.get("covariates") != []:
        settings = {"coefficients": COEFFICIENTS, **settings}
    return fa.Plan(
        **in_parts(
            {
                "name": name,
                "arm": "group",
                "arms": {"a": 0.5, "b": 0.5},
                "outcomes": ["y"],
                "covariates": ["x"],
                "unit": "unit",
                "cohort": 50,
                "smallest_cell": 2,
                **settings,
            }
        )
    )


def people(n: int, seed: int = 0) -> pa.Table:
    """Records of units that come back, though not within a cohort: who is new is `tests/keeping/test_cohort.py`'s."""
    rng = np.random.default_rng(seed)
    unit = np.resize(rng.permutation(max(50, n // 2)), n)
    x = rng.normal(size=n)
    return pa.table(
        {
            "group": np.where(unit % 2 == 0, "a", "b"),
            "x": x,
            "y": x + 0.3 * (unit % 2) + (unit % 7) / 5 + rng.normal(size=n),
            "unit": [f"unit-{u}" for u in unit],
        }
    )


FORMS: tuple[tuple[str | None, Callable[[pa.Table], bytes]], ...] = (
    (ARROW, as_arrow),
    (None, as_arrow),
    (NDJSON, as_ndjson),
    (None, as_ndjson),
    (JSON, as_json),
    (None, as_json),
)


def messages(records: pa.Table, sizes: Iterable[int]) -> list[Sent]:
    """The records in messages of these sizes, in every form in turn; what is left comes one to a message."""
    sent, start = [], 0
    for i, size in enumerate(sizes):
        kind, write = FORMS[i % len(FORMS)]
        sent.append(Sent(write(records.slice(start, size)), kind, i % 4))
        start += size
    for i, row in enumerate(records.slice(start).to_pylist()):
        sent.append(Sent(json.dumps(row, indent=2 * (i % 2) or None).encode(), (None, JSON)[i % 2], i % 4))
    return sent


def one_pass(plan: fa.Plan, records: pa.Table, key: bytes | None = None) -> fa.Trial:
    trial = fa.Trial(plan, key=key or KEY)
    trial.fold(records)
    return trial


Stored = Durable[fa.Trial, StreamPositions]


class Remembering(StreamFile):
    """A store that remembers all that was ever written to it, as somebody with access to the disk might."""

    def __init__(self, *place: Any, key: bytes | None = None) -> None:
        super().__init__(*place, key=key)
        self.key = key
        self.written: list[Saved] = []

    def write(self, was: Stored, tallies: fa.Trial, reached: StreamPositions) -> Stored:
        durable = super().write(was, tallies, reached)
        self.written.append(load(self.path, self.key))
        return durable


def stored_in(folder: Path, key: bytes | None = None) -> Saved | None:
    """What a consumer has stored in a folder."""
    return load(folder / STATE, key) if (folder / STATE).exists() else None


def consume(
    server: Server,
    plan: fa.Plan,
    folder: Path,
    *,
    key: bytes | None = None,
    address: str | None = None,
    wrap: Callable[[Broker], Broker] = lambda broker: broker,
    told: Callable[[ConsumerProgress], None] = lambda _: None,
    stopping: Callable[[], bool] = lambda: False,
    store: type[StreamFile] = StreamFile,
    **options: Any,
) -> tuple[fa.Trial, Consumer]:
    """Consume the stream of the plan's name into a folder."""
    where = parse(address or server.address(plan.name))
    options["delete"] = options.get("delete", False) and server.deletes
    settings = ConsumerOptions(**{"until_empty": True, "wait": 0.1, "rest": 0.0, **options})
    with store(folder, plan, where.stream, key=key or KEY) as opened:
        broker = wrap(where.broker(plan.name))
        consumer = Consumer(broker, opened, options=settings, told=told, stopping=stopping)
        return consumer.run(), consumer


def assert_same(found: fa.Trial, expected: fa.Trial) -> None:
    """The same effects and errors, of every kind, to nine digits."""
    assert found.counts == expected.counts
    ours, theirs = found.effects(), expected.effects()
    assert len(ours) == len(theirs) > 0
    for a, b in zip(ours, theirs, strict=True):
        assert (a.outcome, a.estimator, a.se_kind) == (b.outcome, b.estimator, b.se_kind)
        if a.estimator == "adjusted" and found.plan.moments is not None:
            continue  # its coefficients are those of the records before the first write
        assert a.why == b.why
        for one, other in ((a.estimate, b.estimate), (a.std_error, b.std_error)):
            assert one is other or one == pytest.approx(other, rel=1e-9, abs=1e-12)


def sizes_of(total: int, seed: int, largest: int = 40) -> Sequence[int]:
    """Sizes of messages that add up to less than a total, so that some records come alone."""
    rng = np.random.default_rng(seed)
    sizes: list[int] = []
    while sum(sizes) < total - largest:
        sizes.append(int(rng.integers(1, largest)))
    return sizes
