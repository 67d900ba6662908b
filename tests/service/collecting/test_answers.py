"""What is told of a trial: answers a growth apart, decided by all servers together; the course is made of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

import foldaway as fa
from batches import receive
from foldaway.account.pace import Pace
from foldaway.effects.door import TOLD
from foldaway.effects.headline import headline
from foldaway.errors import TooEarly, UnknownTrial, VaultError
from foldaway.inference.rounding import round_count
from foldaway.keeping.cohort import GROWTH, Census
from foldaway.service.collecting.answers import Answer, Answers, Candidate, Point, Series
from foldaway.service.collecting.service import Service
from foldaway.service.keys.vault import Vault
from foldaway.sources.formats.body import Decoded, Limits
from plans import in_parts
from sizes import mostly_slow
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


def serving(place: Place, plan: fa.Plan, shard: str = "main") -> Service:
    store = place.open()
    store.create_trial(plan, None)
    return Service(store, shard, Limits())


def send(service: Service, sizes: list[int], *, seed: int = 7) -> Iterator[None]:
    """Batches of these sizes, each followed by the second's tick."""
    table = people(sum(sizes), seed)
    start = 0
    for size in sizes:
        receive(service.records.collector("target"), Decoded(table.slice(start, size)), None, None)
        start += size
        service.tick()
        yield


def run(service: Service, sizes: list[int], *, seed: int = 7) -> list[Point]:
    for _ in send(service, sizes, seed=seed):
        pass
    return course(service)


def course(service: Service) -> list[Point]:
    return service.history("target", 0, ALL).points


def told_after(service: Service) -> list[int]:
    """The records of each answer, which nobody is told so exactly."""
    return [row.records for row in service.store.history.read("target")]


def asked(service: Service) -> Answer | None:
    try:
        return service.effects("target")
    except TooEarly:
        return None


def check_law(service: Service, cohort: int) -> None:
    assert all(b - a >= max(cohort, GROWTH * a) for a, b in pairwise([0, *told_after(service)]))
    assert all(b.time >= a.time for a, b in pairwise(course(service)))


# When an answer is due.


@pytest.mark.parametrize("size", mostly_slow([1, 7, 30, 100], 7, 30))
def test_two_answers_are_a_cohort_or_more_apart(folder: Place, size: int) -> None:
    settings = {"outcomes": ["hours"], "covariates": []}
    service = serving(folder, plan_of(cohort=30, smallest_cell=2, **settings))
    points = run(service, [size] * (200 // size))
    check_law(service, 30)
    assert len(points) == 200 // (-(-30 // size) * size)  # one for each commit


def test_two_answers_are_a_share_of_the_records_apart(folder: Place) -> None:
    """So that the number of answers grows like a logarithm, and none is as fine as a cohort in a large trial."""
    service = serving(folder, plan_of(cohort=10, outcomes=["hours"], covariates=[]))
    run(service, [1_000] + [10] * 20)
    check_law(service, 10)
    assert told_after(service) == [1_000, 1_050, 1_110, 1_170]


def test_an_answer_stays_until_the_next_however_often_it_is_asked(place: Place) -> None:
    """Also on a server that has just started, and one that has no records of its own."""
    plan = plan_of(cohort=50)
    service, idle = serving(place, plan), serving(place, plan, "idle")
    said: list[Answer] = []
    for _ in send(service, [10] * 15):
        here = [asked(server) for server in (service, idle, Service(service.store, "main", Limits())) for _ in range(3)]
        assert all(answer == here[0] for answer in here)
        if here[0] is not None and here[0] not in said:
            said.append(here[0])
    assert told_after(service) == [50, 100, 150]
    assert [answer.records for answer in said] == [round_count(n) for n in told_after(service)]


def test_no_answer_before_every_arm_has_units_enough_in_all_and_since_the_last(folder: Place) -> None:
    service = serving(folder, plan_of(cohort=20, smallest_cell=10, outcomes=["hours"], covariates=[]))

    def come(control: int, treatment: int) -> list[int]:
        arm = ["control"] * control + ["treatment"] * treatment
        hours = np.random.default_rng(len(told_after(service))).normal(size=len(arm))
        receive(service.records.collector("target"), Decoded(pa.table({"arm": arm, "hours": hours})), None, None)
        service.tick()
        return told_after(service)

    assert come(91, 9) == []  # nine of an arm
    assert come(10, 11) == [121]
    assert come(21, 9) == [121]  # nine more of it
    assert come(20, 1) == [121, 172]
    assert come(30, 0) == [121, 172, 202]  # none more of it, which says nothing


def test_answers_are_rounded_and_exact_ones_are_those_of_kept_rows(folder: Place) -> None:
    plan = plan_of(cohort=100)
    service = serving(folder, plan)
    run(service, [103])
    whole = fa.Trial(plan)
    whole.fold(people(103))
    told, exact = service.effects("target"), service.effects("target", exact=True)
    assert (told.records, exact.records) == (105, 103)
    assert fa.Effects.from_json(bytes(told.effects)).rounded
    pairs = zip(fa.Effects.from_json(bytes(exact.effects)), whole.effects(), strict=True)
    for ours, theirs in pairs:
        assert (ours.estimate, ours.std_error) == pytest.approx((theirs.estimate, theirs.std_error), rel=1e-9)
    levels = [row.control_level for row in whole.effects()]
    for row, level in zip(fa.Effects.from_json(bytes(told.effects)), levels, strict=True):
        assert row.control_level != level


# The course.


def test_the_course_is_made_of_the_answers_that_were_given(place: Place) -> None:
    service = serving(place, plan_of(cohort=50))
    said = {}
    for _ in send(service, [50] * 6):
        answer = service.effects("target")
        said[answer.records] = headline(fa.Effects.from_json(bytes(answer.effects)))
    points = course(service)
    assert [point.records for point in points] == list(said) == [50, 100, 150, 200, 250, 300]
    for point in points:
        rows = said[point.records]
        assert len(rows) == 4  # two outcomes, two estimators
        for told, row in zip(point.effects, rows, strict=True):
            assert msgspec.structs.asdict(told) == {name: getattr(row, name) for name in told.__struct_fields__}


def test_the_course_says_no_number_of_records_more_exactly_than_its_answers(folder: Place) -> None:
    service = serving(folder, plan_of(cohort=50))
    points = run(service, [103, 104, 109])
    assert told_after(service) == [103, 207, 316]
    assert [point.records for point in points] == [105, 205, 315]
    for seen, point in enumerate(points):  # whoever asks for what comes after a point gets it no second time
        assert service.history("target", point.records, ALL).points == points[seen + 1 :]


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


def test_a_number_that_does_not_exist_is_null(folder: Place) -> None:
    """And so is a level without spread, which would be everyone's."""
    service = serving(folder, plan_of(cohort=20, outcomes=["hours"], covariates=[]))
    same = pa.table({"arm": ["control", "treatment"] * 20, "hours": [1.0] * 40})
    receive(service.records.collector("target"), Decoded(same), None, None)
    service.tick()
    (estimate,) = course(service)[0].effects
    assert (estimate.estimate, estimate.anytime_ci_lower, estimate.anytime_ci_upper) == (None, None, None)


# Several servers, and those that start again.


def test_servers_decide_together_when_an_answer_is_due(place: Place) -> None:
    plan = plan_of(cohort=30)
    servers = [serving(place, plan, shard) for shard in ("one", "two", "three")]
    turns = [send(server, [30, 45, 30, 60], seed=i) for i, server in enumerate(servers)]
    for _ in range(4):
        for turn in turns:
            next(turn)
            assert len({bytes(server.effects("target").effects) for server in servers}) == 1
    assert course(servers[0]) == course(servers[1]) == course(servers[2])
    check_law(servers[0], 30)
    assert told_after(servers[0])[-1] == 3 * 165


@pytest.mark.once
def test_of_two_servers_that_would_tell_at_once_one_does(place: Place) -> None:
    """The second has looked before the first told, computes for a while, and then finds that it is not due any more."""
    plan = plan_of(cohort=30)
    stores = [serving(place, plan).store for _ in range(2)]
    first, second = (Answers(store) for store in stores)
    effects = [fa.Trial(plan) for _ in range(2)]
    for trial, seed in zip(effects, (1, 2), strict=True):
        trial.fold(people(60, seed))

    def candidate(n: int, trial: fa.Trial, before: Any = lambda: None) -> Candidate:
        def computed() -> fa.Effects:
            before()
            return trial.read(TOLD)

        return Candidate(n, Census({"control": [n // 2], "treatment": [n // 2]}), computed)

    def first_tells() -> None:
        assert first.current(plan, 1, lambda: candidate(60, effects[0])) is not None

    told = second.current(plan, 1, lambda: candidate(80, effects[1], first_tells))
    assert told is not None
    assert told.records == 60
    assert [row.estimate for row in told.effects] == [row.estimate for row in effects[0].read(TOLD)]
    assert [row.records for row in stores[1].history.read("target")] == [60]


def test_who_asks_again_makes_nobody_compute(folder: Place) -> None:
    plan = plan_of(cohort=30)
    store = serving(folder, plan).store
    told = Answers(store)
    trial = fa.Trial(plan)
    trial.fold(people(60))
    computed: list[int] = []

    def candidate() -> Candidate:
        computed.append(trial.n)
        return Candidate(trial.n, trial.tallies.census(), lambda: trial.read(TOLD))

    for mark in (1, 1, 1, 2, 2):
        told.current(plan, mark, candidate)
    assert computed == [60, 60]


@pytest.mark.once
def test_a_restart_repeats_no_answer_and_loses_none(place: Place) -> None:
    plan = plan_of(cohort=40)
    before = run(serving(place, plan), [40] * 5)
    again = serving(place, plan)
    again.records.collector("target")
    for _ in range(3):
        again.tick()  # what is durable has been told
    assert course(again) == before
    points = run(again, [40] * 3, seed=8)
    assert points[:5] == before
    assert told_after(again) == [40, 80, 120, 160, 200, 240, 280, 320]


@pytest.mark.once
def test_a_crash_between_a_commit_and_its_answer_is_made_up_for_by_the_next(place: Place) -> None:
    plan = plan_of(cohort=40)
    receive(serving(place, plan).records.collector("target"), Decoded(people(40)), None, None)  # and no tick
    again = serving(place, plan)
    run(again, [40], seed=8)
    assert told_after(again) == [80]


# Seldom enough, sealed, and over at the end.


def test_answers_are_renewed_on_a_tick_and_carry_its_time(folder: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [120.5]
    monkeypatch.setattr("time.time", lambda: clock[0])
    store = folder.open()
    store.create_trial(plan_of(cohort=10, smallest_cell=2), None)
    service = Service(store, "main", Limits(), Pace(60))
    changes, seen = [], 0
    for _ in send(service, [10] * 20):
        clock[0] += 20.0
        asked(service)
        service.tick()  # it looks before the next batch comes
        if len(course(service)) > seen:
            seen = len(course(service))
            changes.append(clock[0])
    assert seen > 5
    assert len(course(service)) == len(changes)
    assert len({change // 60 for change in changes}) == len(changes)  # no two in a tick
    assert all(point.time % 60 == 0 for point in course(service))


def test_what_was_told_is_sealed_and_follows_the_key(place: Place) -> None:
    service = serving(place, plan_of(cohort=40))
    points = run(service, [40] * 3)
    answer = service.effects("target")
    numbers = re.findall(rb'"ci_lower":(-?[\d.]{12,})', bytes(answer.effects))
    assert numbers
    assert not any(number in place.files() for number in numbers)
    service.store.rotate(Vault([bytes(32), *[bytes(range(32))]]))
    renewed = Service(place.open(Vault([bytes(32)])), "main", Limits())
    assert course(renewed) == points
    assert renewed.effects("target") == answer
    with pytest.raises(VaultError):
        place.open(VAULT)


def test_a_trial_that_has_ended_keeps_its_course_and_gets_no_further_point(folder: Place) -> None:
    service, late = (serving(folder, plan_of(cohort=40), shard) for shard in ("main", "late"))
    points = run(service, [40] * 3)
    shards = late.store.shards.all("target")
    service.end("target")
    trial = fa.Trial(plan_of(cohort=40))
    trial.fold(people(400))
    told = late.answers.current(
        trial.plan,
        shards[0].version + 1,
        lambda: Candidate(400, trial.tallies.census(), lambda: trial.read(TOLD)),
    )
    assert told is None  # the answers are gone, but for their course
    assert course(service) == course(late) == points
