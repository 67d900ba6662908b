"""What is pending in memory: apart from what is durable, and from any copy of it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import foldaway as fa
from foldaway.service.collecting.live_tallies import LiveTallies

PLAN = fa.Plan(
    name="live", arm="arm", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], covariates=["x"], unit="id",
    privacy=fa.Privacy(cohort=50),
)  # fmt: skip
KEY = bytes(16)


def records(seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    unit, x = rng.integers(0, 5_000, 200), rng.normal(size=200)
    return pa.table({"arm": np.array(["a", "b"])[unit % 2], "id": unit, "x": x, "y": 3 * x + rng.normal(size=200)})


def trial(*seeds: int) -> fa.Trial:
    found = fa.Trial(PLAN, key=KEY)
    for seed in seeds:
        found.fold(records(seed))
    return found


def test_a_copy_is_what_was_there_whatever_comes_after() -> None:
    live = LiveTallies(trial(1), trial(), 1)
    assert (live.pending, live.durable) == (0, 200)
    live.fold(records(2))
    before = live.copy()
    live.fold(records(3))
    assert [(one.pending, one.durable) for one in (before, live)] == [(200, 200), (400, 200)]
    assert before.trial.stored() == trial(1, 2).exchanged()
    live.wrote(2)
    assert (live.version, live.pending, live.durable, before.version) == (2, 0, 600, 1)


@pytest.mark.parametrize("pending", [(), (2,), (2, 3)])
def test_what_is_pending_is_mapped_onto_what_others_have_made_of_the_rest(pending: tuple[int, ...]) -> None:
    live, lean = LiveTallies(trial(1), trial(), 1), trial(1)
    lean.fix()
    lean.written()
    for seed in pending:
        live.fold(records(seed))
    live.map_onto(lean, 2)
    assert not live.unfixed
    assert (live.version, live.pending, live.durable) == (2, 200 * len(pending), 200)
    whole = fa.Trial.loads(lean.exchanged(), PLAN, key=KEY)
    for seed in pending:
        whole.fold(records(seed))
    for row, other in zip(live.trial.effects(), whole.effects(), strict=True):
        assert (row.estimate, row.std_error) == pytest.approx((other.estimate, other.std_error), rel=1e-9)
