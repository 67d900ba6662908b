"""A trial's course: points a cohort or more apart, few enough, each once, and each what an answer said at the time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

import foldaway as fa
from foldaway.effects.headline import headline
from foldaway.errors import UnknownTrial, VaultError
from foldaway.service.collecting import history
from foldaway.service.collecting.history import Point, Series
from foldaway.service.collecting.service import Service
from foldaway.service.keys.vault import Vault
from foldaway.sources.formats.body import Decoded, Limits
from plans import in_parts
from stores import VAULT, Place

ALL = Series()


def plan_of(**settings: Any) -> fa.Plan:
    return fa.Plan(
        **in_parts(
            {
                "name": "target",
                "arm": "arm",
                "arms": {"control": 0.5, "treatment": 0.5},
                "outcomes": ["income", "hours"],
                "covariates": ["age"],
                **settings,
            }
        )
    )


def people(n: int, seed: int = 7) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "arm": rng.permutation(np.resize(["control", "treatment"], n)),
            "age": rng.normal(40, 10, n),
            "income": rng.lognormal(8, 1, n),
            "hours": rng.normal(38, 5, n),
        }
    )


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A point whenever one is due by its records, without the pause between two; one test puts the pause back."""
    monkeypatch.setattr(history, "_EVERY", 0.0)
    monkeypatch.setattr(history, "_SHARE", 1e9)


def serving(place: Place, plan: fa.Plan, shard: str = "main") -> Service:
    store = place.open()
    store.create_trial(plan, None)
    return Service(store, shard, Limits())


def send(service: Service, sizes: list[int], *, seed: int = 7) -> Iterator[None]:
    """Batches of these sizes, each followed by the second's tick."""
    table = people(sum(sizes), seed)
    start = 0
    for size in sizes:
        service.records.collector("target").receive(Decoded(table.slice(start, size)), None, None)
        start += size
        service.tick()
        yield


def run(service: Service, sizes: list[int], *, seed: int = 7) -> list[Point]:
    for _ in send(service, sizes, seed=seed):
        pass
    return service.history("target", 0, ALL).points


def check_law(points: list[Point], cohort: int) -> None:
    records = [point.records for point in points]
    assert all(b - a >= cohort for a, b in pairwise([0, *records])), records
    assert all(b.time >= a.time for a, b in pairwise(points))


@pytest.mark.parametrize("size", [1, 7, 30, 100])
def test_two_points_are_a_cohort_or_more_apart(folder: Place, size: int) -> None:
    points = run(serving(folder, plan_of(cohort=30)), [size] * (200 // size))
    check_law(points, 30)
    assert len(points) == 200 // (-(-30 // size) * size)  # one for each commit


def test_max_wait_brings_states_closer_to_each_other_but_not_points(
    folder: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("foldaway.service.collecting.collector.time.monotonic", lambda: clock[0])
    service = serving(folder, plan_of(cohort=50, max_wait=1.0))
    durable = []
    for _ in send(service, [5] * 40):
        clock[0] += 2.0
        service.tick()
        durable.append(service.status("target").records)
    assert durable[:3] == [5, 10, 15]
    points = service.history("target", 0, ALL).points
    check_law(points, 50)
    assert [point.records for point in points] == [50, 100, 150, 200]


def test_no_point_before_every_arm_has_its_minimum(folder: Place) -> None:
    service = serving(folder, plan_of(cohort=10, smallest_cell=40))
    points = run(service, [10] * 12)
    check_law(points, 10)
    first = fa.Effects.from_json(bytes(service.effects("target").effects))
    assert points
    assert points[0].records >= 80
    assert points[0].records < sum(first.counts.values())


def test_a_point_says_what_an_answer_said_at_that_moment(place: Place) -> None:
    service = serving(place, plan_of(cohort=50))
    said = {}
    for _ in send(service, [50] * 6):
        answer = service.effects("target")
        said[answer.records] = headline(fa.Effects.from_json(bytes(answer.effects)))
    points = service.history("target", 0, ALL).points
    assert [point.records for point in points] == list(said) == [50, 100, 150, 200, 250, 300]
    for point in points:
        rows = said[point.records]
        assert len(rows) == 4  # two outcomes, two estimators
        for told, row in zip(point.effects, rows, strict=True):
            assert msgspec.structs.asdict(told) == {name: getattr(row, name) for name in told.__struct_fields__}


def test_what_is_asked_for_is_what_comes(folder: Place) -> None:
    service = serving(folder, plan_of(cohort=50))
    whole = run(service, [50] * 4)
    some = service.history("target", 100, Series("hours", "treatment", "difference")).points
    assert [point.records for point in some] == [150, 200]
    for point in some:
        whole_point = next(other for other in whole if other.records == point.records)
        assert point.effects == [e for e in whole_point.effects if (e.outcome, e.estimator) == ("hours", "difference")]
        assert len(point.effects) == 1
    assert service.history("target", 200, ALL).points == []
    assert all(not point.effects for point in service.history("target", 0, Series(arm="nobody")).points)
    with pytest.raises(UnknownTrial):
        service.history("unknown", 0, ALL)


def test_the_number_of_points_is_bounded_and_the_ends_stay(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MOST", 12)
    service = serving(place, plan_of(cohort=10, smallest_cell=2, outcomes=["hours"], estimators=["difference"]))
    seen = set()
    for _ in send(service, [10] * 90):
        points = service.history("target", 0, ALL).points
        check_law(points, 10)
        seen.add(len(points))
    assert max(seen) == 12
    assert min(seen - set(range(7))) >= 7
    records = [point.records for point in points]
    assert records[0] == 10
    assert records[-1] > 900 - 2 * 900 // 12
    gaps = [b - a for a, b in pairwise(records)]
    assert max(gaps) <= 8 * min(gaps)  # thinned evenly, not at one end


def test_a_restart_repeats_no_point_and_loses_none(place: Place) -> None:
    plan = plan_of(cohort=40)
    before = run(serving(place, plan), [40] * 5)
    again = serving(place, plan)
    again.records.collector("target")
    for _ in range(3):
        again.tick()  # what is durable has its points
    assert again.history("target", 0, ALL).points == before
    points = run(again, [40] * 3, seed=8)
    assert points[:5] == before
    assert [point.records for point in points] == [40, 80, 120, 160, 200, 240, 280, 320]


def test_a_crash_between_a_commit_and_its_point_is_made_up_for_by_the_next(place: Place) -> None:
    plan = plan_of(cohort=40)
    serving(place, plan).records.collector("target").receive(Decoded(people(40)), None, None)  # and no tick
    points = run(serving(place, plan), [40], seed=8)
    assert [point.records for point in points] == [80]


def test_points_of_several_servers_are_of_all_records_together(database: Place) -> None:
    plan = plan_of(cohort=30)
    servers = [serving(database, plan, shard) for shard in ("one", "two", "three")]
    turns = [send(server, [30, 45, 30, 60], seed=i) for i, server in enumerate(servers)]
    for _ in range(4):
        for turn in turns:
            next(turn)
    courses = [server.history("target", 0, ALL).points for server in servers]
    assert courses[0] == courses[1] == courses[2]
    check_law(courses[0], 30)
    assert courses[0][-1].records == 3 * 165
    # A server that looked before the others committed comes too late with what it saw.
    late = msgspec.msgpack.encode([])
    assert not servers[0].store.history.append("target", 3 * 165, late, apart=30, most=500)
    assert not servers[0].store.history.append("target", 400, late, apart=30, most=500)


def test_a_closed_trial_keeps_its_course_and_gets_no_further_point(folder: Place) -> None:
    service = serving(folder, plan_of(cohort=40))
    points = run(service, [40] * 3)
    service.close("target")
    assert service.history("target", 0, ALL).points == points
    late = msgspec.msgpack.encode([])
    assert not service.store.history.append("target", 10_000, late, apart=1, most=500)


def test_points_are_not_taken_too_often(folder: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("foldaway.service.collecting.history.time.monotonic", lambda: clock[0])
    monkeypatch.setattr(history, "_EVERY", 1.0)
    service = serving(folder, plan_of(cohort=10, smallest_cell=2))
    seen = []
    for _ in send(service, [10] * 20):
        clock[0] += 0.25
        seen.append(len(service.history("target", 0, ALL).points))
    assert seen[-1] == 5
    service.tick()  # the last commits have their point as soon as one may be taken
    assert service.history("target", 0, ALL).points[-1].records == 200


def test_what_takes_long_is_done_seldom(folder: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]

    def slowly() -> float:
        clock[0] += 0.5  # between any two looks at the clock
        return clock[0]

    monkeypatch.setattr("foldaway.service.collecting.history.time.monotonic", slowly)
    monkeypatch.setattr(history, "_EVERY", 1.0)
    monkeypatch.setattr(history, "_SHARE", 0.05)
    service = serving(folder, plan_of(cohort=10, smallest_cell=2))
    taken: list[float] = []
    for _ in send(service, [10] * 60):
        while len(taken) < len(service.history("target", 0, ALL).points):
            taken.append(clock[0])
    assert len(taken) >= 3
    assert min(b - a for a, b in pairwise(taken)) >= 10  # half a second is a twentieth of it


def test_points_are_sealed_and_follow_the_key(place: Place) -> None:
    service = serving(place, plan_of(cohort=40, arms={"control": 0.5, "treatment": 0.5}))
    points = run(service, [40] * 3)
    assert b"interacted" not in place.files()
    other = Vault([bytes(32), *[bytes(range(32))]])
    service.store.rotate(other)
    renewed = place.open(Vault([bytes(32)]))
    assert [row.records for row in renewed.history.read("target")] == [40, 80, 120]
    assert Service(renewed, "main", Limits()).history("target", 0, ALL).points == points
    with pytest.raises(VaultError):
        place.open(VAULT)


def test_a_number_that_does_not_exist_is_null(folder: Place) -> None:
    service = serving(folder, plan_of(cohort=20, outcomes=["hours"], covariates=[], estimators=["difference"]))
    same = pa.table({"arm": ["control", "treatment"] * 20, "hours": [1.0] * 40})
    service.records.collector("target").receive(Decoded(same), None, None)
    service.tick()
    (estimate,) = service.history("target", 0, ALL).points[0].effects
    assert (estimate.estimate, estimate.anytime_ci_lower, estimate.anytime_ci_upper) == (0.0, None, None)
