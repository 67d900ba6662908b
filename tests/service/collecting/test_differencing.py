"""The differencing attack: two successive states or answers, subtracted, and solved for the record between them.

It recovers a record to the digit where states, or exact answers, are one record apart, and nothing where they are a
cohort apart, or rounded (promise P2). The attacker has the database, its key, and every answer.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Any, NamedTuple

import httpx
import msgspec
import numpy as np
import pyarrow as pa
import pytest
import uvicorn

import foldaway as fa
from batches import receive
from foldaway.client import Client
from foldaway.errors import IngestError, ServerError, TooEarly
from foldaway.federated.coordinator.ending import EndRequest
from foldaway.service.collecting.record_inbox import RecordInbox
from foldaway.service.collecting.service import Service
from foldaway.service.database.store import Store
from foldaway.service.http.app import make_app
from foldaway.service.keys.tokens import Wanted
from foldaway.sources.formats.body import Decoded, Limits
from foldaway.tallies import arms_of
from plans import in_parts
from postgres import free_port
from servers import wait_for
from sizes import mostly_slow
from stores import Place

N = 1_000


def plan_of(**settings: Any) -> fa.Plan:
    return fa.Plan(
        name="target",
        arm="arm",
        arms={"control": 0.5, "treatment": 0.5},
        moments=fa.Moments(),
        outcomes=["income"],
        covariates=["age"],
        **in_parts(settings),
    )


def people(n: int = N) -> pa.Table:
    rng = np.random.default_rng(7)
    return pa.table(
        {
            "arm": rng.permutation(np.tile(["control", "treatment"], n // 2)),
            "age": rng.integers(18, 90, n).astype(float),
            "income": np.round(rng.lognormal(8, 1, n), 2),
        }
    )


def opened(place: Place, plan: fa.Plan) -> Store:
    store = place.open()
    store.create_trial(plan, None)
    return store


# The attacker's side.


def stored_states(place: Place, seen: int) -> Iterator[fa.Trial]:
    """What the database holds, if that is not what was seen, opened with its key: without the store's help."""
    for version, n, sealed in place.sql("SELECT version, n, state FROM foldaway_shards WHERE trial = 'target'"):
        if sealed is not None and n != seen:
            yield fa.Trial.loads(place.opened(bytes(sealed), f"state:target:main:{version}"))


def sums(trial: fa.Trial) -> list[np.ndarray[Any, Any]]:
    """Each arm's second moments of (1, age, income), as its state has them: the number of records is the first."""
    found = []
    for arm in arms_of(trial.tallies):
        R = np.asarray(arm.raw_factor(), dtype=np.float64)
        found.append(R.T @ R)
    return found


def solve(before: fa.Trial, after: fa.Trial) -> tuple[str, float, float] | None:
    """The one record by which two states differ: its arm, age and income; none if that is not what they differ by."""
    changed = [
        (name, now - then)
        for name, then, now in zip(before.plan.arms, sums(before), sums(after), strict=True)
        if round(now[0, 0] - then[0, 0])
    ]
    if len(changed) != 1 or round(changed[0][1][0, 0]) != 1:
        return None
    name, moments = changed[0]
    return name, float(moments[0, 1]), float(moments[0, 2])


def recovered(found: list[tuple[str, float, float]], truth: pa.Table) -> int:
    """How many of the solutions have the income of a person of the trial; ages are in no state that few tell apart."""
    rows = {(row["arm"], row["income"]) for row in truth.to_pylist()}
    return sum((arm, round(income, 2)) in rows for arm, _, income in found)


def solve_answers(before: fa.Effects, after: fa.Effects) -> tuple[str, float] | None:
    """The same from two answers: the arm's sum is its mean, times its count."""
    then, now = before.filter(estimator="difference")[0], after.filter(estimator="difference")[0]
    more = now.n_control - then.n_control, now.n_arm - then.n_arm
    if sum(more) != 1:
        return None
    if more[0]:
        return now.control, now.control_level * now.n_control - then.control_level * then.n_control
    return now.arm, (now.control_level + now.estimate) * now.n_arm - (then.control_level + then.estimate) * then.n_arm


class Solved(NamedTuple):
    """By how many records successive states differ, and how many records were solved for, by what the attacker saw."""

    steps: list[int]
    states: int
    told: int
    exact: int


def attack(place: Place, plan: fa.Plan, sizes: list[int]) -> Solved:
    """Send people in batches of these sizes and look after each."""
    table = people()
    store = opened(place, plan)
    collector, service = RecordInbox(store, "target", "main"), Service(store, "main", Limits())
    states: list[fa.Trial] = [fa.Trial(plan)]
    answers: dict[bool, list[fa.Effects]] = {False: [], True: []}
    start = 0
    for number, size in enumerate(sizes, start=1):
        receive(collector, Decoded(table.slice(start, size)), "p", number)
        start += size
        states.extend(stored_states(place, states[-1].n))
        for exact, seen in answers.items():
            with suppress(TooEarly):
                effects = fa.Effects.from_json(bytes(service.effects("target", exact=exact).effects))
                if min(effects.counts.values()) >= 10 and (not seen or effects.counts != seen[-1].counts):
                    seen.append(effects)
    truth = {(row["arm"], row["income"]) for row in table.to_pylist()}
    from_answers = [
        sum((one[0], round(one[1], 2)) in truth for pair in pairwise(seen) if (one := solve_answers(*pair)) is not None)
        for seen in answers.values()
    ]
    steps = [after.n - before.n for before, after in pairwise(states)]
    solved = [found for pair in pairwise(states) if (found := solve(*pair)) is not None]
    return Solved(steps, recovered(solved, table), *from_answers)


@pytest.mark.parametrize("size", mostly_slow([1, 7], 7))
def test_a_cohort_hides_the_record_between_two_states_and_two_answers(folder: Place, size: int) -> None:
    solved = attack(folder, plan_of(), [size] * (215 // size))
    assert len(solved.steps) == 2
    assert min(solved.steps) >= 100
    assert solved[1:] == (0, 0, 0)


def test_without_a_cohort_and_without_rounding_the_attack_succeeds(folder: Place) -> None:
    solved = attack(folder, plan_of(cohort=1), [1] * 50)
    assert solved.steps == [1] * 50
    assert solved.states == 50
    assert solved.exact > 20  # all but those before each arm had ten
    assert solved.told == 0  # rounded, and not after every record


def test_a_large_batch_hides_nothing_of_the_small_one_after_it(folder: Place) -> None:
    """A cohort counts from the last state, not from the trial's beginning."""
    solved = attack(folder, plan_of(), [300, 1, 98, 1, 99, 1])
    assert solved.steps == [300, 100, 100]
    assert solved.states == 0


# What an answer needs.


def test_no_effects_before_every_arm_has_its_minimum(folder: Place) -> None:
    plan = plan_of(cohort=10, smallest_cell=20)
    store = opened(folder, plan)
    collector, service = RecordInbox(store, "target", "main"), Service(store, "main", Limits())
    one_arm = pa.table({"arm": ["control"] * 200, "age": [30.0] * 200, "income": np.arange(200.0)})
    receive(collector, Decoded(one_arm), "p", 1)
    treated = pa.table({"arm": ["treatment"] * 19, "age": np.arange(19.0), "income": np.arange(19.0)})
    receive(collector, Decoded(treated), "p", 2)
    with pytest.raises(TooEarly, match=r"10 units .*, and 20 units in every arm"):
        service.effects("target")
    receive(collector, Decoded(treated.slice(0, 9)), "p", 3)  # pending, so it does not count
    with pytest.raises(TooEarly):
        service.effects("target")
    receive(collector, Decoded(treated.slice(9, 1)), "p", 4)
    assert service.effects("target", exact=True).records == 229
    assert service.effects("target").records == 230


def test_a_trial_ended_too_early_has_no_effects(folder: Place) -> None:
    service = Service(opened(folder, plan_of()), "main", Limits())
    receive(service.records.collector("target"), Decoded(people().slice(0, 99)), "p", 1)
    with pytest.raises(IngestError, match=r"effects would be withheld.*100 units \(the plan's .cohort.\)"):
        service.end("target")
    assert service.status("target").status == "open"
    assert service.records.pending("target") == 99
    answer = service.end("target", EndRequest(without_effects=True))
    assert (bytes(answer.effects), answer.records, answer.left_out) == (b"null", 100, 0)


# The same over HTTP.


@pytest.fixture
def served(folder: Place) -> Iterator[tuple[str, str, Service]]:
    """A server in a thread of this process, and its administrator's token."""
    service = Service(folder.open(), "main", Limits())
    token = service.store.tokens.issue(Wanted("admin"))[1]
    port = free_port()
    config = uvicorn.Config(
        make_app(service, quiet=True), host="127.0.0.1", port=port, http="httptools", loop="asyncio", log_config=None
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_for(lambda: server.started, 30, "starting")
    yield f"http://127.0.0.1:{port}", token, service
    server.should_exit = True
    thread.join(30)


def test_over_http_nothing_is_said_too_early_or_of_less_than_a_cohort(served: tuple[str, str, Service]) -> None:
    url, admin, _ = served
    table = people()
    with Client(url, admin) as owner:
        made = owner.create(plan_of().to_toml())
        with Client(url, made["ingest_token"], producer="p") as producer:
            reader = {"Authorization": f"Bearer {made['read_token']}"}
            producer.send("target", table.slice(0, 99))
            early = httpx.get(f"{url}/v1/trials/target/effects", headers=reader, verify=False)
            assert (early.status_code, early.headers["content-type"]) == (425, "application/problem+json")
            assert "10 units in every arm" in early.json()["detail"]
            answers = set()
            for i in (99, *range(100, 250, 10)):
                producer.send("target", table.slice(i, 1 if i == 99 else 10))
                answers.add(httpx.get(f"{url}/v1/trials/target/effects", headers=reader, verify=False).content)
            assert sorted(msgspec.json.decode(answer)["records"] for answer in answers) == [100, 200]
            refused_exact = httpx.get(f"{url}/v1/trials/target/effects/exact", headers=reader)
            assert refused_exact.status_code == 403
            assert owner.status("target")["exact_answers"] == 0
            assert owner.effects("target", exact=True)["effects"]["rounded"] is False
            assert owner.status("target")["exact_answers"] == 1
            assert producer.kept("target") == 5
            with pytest.raises(ServerError) as refused:
                Client(url, made["read_token"]).send("target", table.slice(0, 1))
            assert refused.value.status == 403
        final = owner.end("target")
        assert (final["records"], final["left_out"], final["effects"]["rounded"]) == (200, 50, True)
