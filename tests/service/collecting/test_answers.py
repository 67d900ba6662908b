"""Effects are computed once for each state, and anew for another."""

from __future__ import annotations

import numpy as np
import pytest

import foldaway as fa
from foldaway.errors import TooEarly
from foldaway.service.collecting import collector
from foldaway.service.collecting.collector import Answers
from foldaway.service.database.shard_table import ShardRow

PLAN = fa.Plan(
    name="small", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], privacy=fa.Privacy(smallest_cell=10)
)


def shard(name: str, version: int, n: int = 100, seed: int = 0) -> ShardRow:
    trial = fa.Trial(PLAN)
    y = np.random.default_rng(seed).normal(size=n)
    trial.fold({"group": np.resize(["a", "b"], n), "y": y})
    return ShardRow(name, version, trial.n, 0, trial.dumps())


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The records of each computation."""
    seen: list[int] = []

    def counting(trial: fa.Trial) -> fa.Effects:
        seen.append(trial.n)
        return trial.effects()

    monkeypatch.setattr(collector, "quiet_effects", counting)
    return seen


def test_who_asks_again_is_told_the_same_without_computing(computed: list[int]) -> None:
    kept = Answers()
    first, again = kept.of(PLAN, [shard("main", 1)]), kept.of(PLAN, [shard("main", 1)])
    assert computed == [100]
    assert first[0] == again[0] == 100
    assert list(first[1]) == list(again[1])


@pytest.mark.parametrize(
    "then",
    [
        [shard("main", 2, 200)],
        [shard("main", 1), shard("other", 1, seed=1)],
        [shard("main", 1, seed=1)],  # the same version of a database that came back from a backup and went another way
    ],
)
def test_another_state_has_another_answer(computed: list[int], then: list[ShardRow]) -> None:
    kept = Answers()
    before = kept.of(PLAN, [shard("main", 1)])
    records, effects = kept.of(PLAN, then)
    assert computed == [100, records]
    assert records == sum(row.n for row in then)
    whole = fa.Trial(PLAN)
    for row in then:
        assert row.state is not None
        whole = whole.merge(fa.Trial.loads(row.state))
    assert [row.estimate for row in effects] == [row.estimate for row in whole.effects()]
    assert effects[0].estimate != before[1][0].estimate


def test_too_few_is_too_few_each_time_and_a_dropped_answer_is_computed_again(computed: list[int]) -> None:
    kept = Answers()
    for _ in range(2):
        with pytest.raises(TooEarly):
            kept.of(PLAN, [shard("main", 1, 18)])
    assert computed == []
    kept.of(PLAN, [shard("main", 2)])
    kept.drop("small")
    kept.drop("unknown")
    kept.of(PLAN, [shard("main", 2)])
    assert computed == [100, 100]
