"""A plan with planned looks, on a server: each look is taken when its information is durable, and only once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

import foldaway as fa
from counted_devices import plan_of
from foldaway.effects import Effects
from foldaway.effects.looks_taken import BENEFIT, GO_ON, HIGHER, Look
from foldaway.errors import PlanError, TrialEnded
from foldaway.federated.messages import DeviceMoments, DeviceSums, Enrolment, GroupSums, encoded, new_number, packed
from foldaway.service.collecting.record_trials import Sent
from foldaway.service.collecting.service import Service
from foldaway.sources.formats.body import JSON, Limits
from plans import LOOKED, replaced
from stores import Place
from trials import known

PLAN = fa.Plan(
    name="looked-at",
    arm="arm",
    arms={"placebo": 0.5, "drug": 0.5},
    outcomes=[fa.Mean("pain", better="lower"), "weight"],
    looks={"information": {"units": 900}, "at": [0.5, 0.75, 1.0]},
)


def send(service: Service, rng: np.random.Generator, n: int, effect: float = 0.0, name: str = PLAN.name) -> None:
    """So many records, which are durable at once."""
    rows = [
        {"arm": arm, "pain": rng.normal(5 - effect * (arm == "drug")), "weight": rng.normal()}
        for arm in rng.choice(["placebo", "drug"], n).tolist()
    ]
    (answer,) = service.records.receive(name, [(bytearray(msgspec.json.encode(rows)), Sent(JSON))])
    assert not isinstance(answer, Exception), answer


def told(service: Service, name: str = PLAN.name, **how: Any) -> Effects:
    effects = service.effects(name, **how).opened()
    assert effects is not None
    return effects


def test_looks_are_taken_on_their_information_once_for_all_servers_and_survive_a_crash(place: Place) -> None:
    rng = np.random.default_rng(8)
    store = place.open()
    one, two = (Service(store, name, Limits()) for name in ("one", "two"))
    one.create(PLAN.to_toml())
    send(one, rng, 300)
    assert told(one).looks == ()
    send(two, rng, 170)
    first = told(two).looks
    assert [(look.arms[0].found, look.fraction) for look in first] == [(GO_ON, 0.5)]
    (kept,) = store.looks.read(PLAN.name)
    assert kept.fraction == 470 / 900
    store.looks.take(PLAN.name, 0, msgspec.structs.replace(kept, fraction=0.6))  # another server, a moment later
    assert store.looks.read(PLAN.name) == (kept,)
    store.close()

    again = place.open()
    back = Service(again, "one", Limits())
    assert told(back, exact=True).looks == (kept,)
    send(back, rng, 300, effect=0.6)
    effects = told(back)
    assert [look.arms[0].found for look in effects.looks] == [GO_ON, BENEFIT]
    assert "Ship it" in effects.to_string()
    assert "stop for benefit" in back.report(PLAN.name)
    exact = told(back, exact=True).looks[-1].arms[0]
    assert exact.estimate is not None
    assert exact.p_value is not None
    assert effects.looks[-1].arms[0].estimate is None
    back.end(PLAN.name)
    final = told(back)
    assert [look.arms[0].found for look in final.looks] == [GO_ON, BENEFIT]
    row, ended = final[0], final.looks[-1].arms[0]
    assert known(ended.estimate) == pytest.approx(exact.estimate, abs=known(row.std_error) / 2)
    assert known(ended.ci_lower) < known(ended.estimate) < known(ended.ci_upper) < 0
    assert abs(known(ended.estimate)) < abs(known(row.estimate))  # a trial that stops has a large estimate
    assert known(ended.p_value) < 0.05
    assert "effect by stage-wise ordering" in " ".join(final.to_string().split())
    with pytest.raises(TrialEnded, match="final effects name its looks"):
        again.looks.read(PLAN.name)
    with pytest.raises(TrialEnded, match="final effects name its looks"):
        again.looks.take(PLAN.name, 2, kept)


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lets something happen once, between a read of a table and what is made of it."""

    def happens(table: object, read: str, what: Callable[[], object]) -> None:
        once, reading = [what], getattr(table, read)

        def reads(*args: Any) -> Any:
            found = reading(*args)
            while once:
                once.pop()()
            return found

        monkeypatch.setattr(table, read, reads)

    return happens


def test_a_look_that_another_server_tells_while_a_trial_ends_is_in_its_final_effects(
    place: Place, meanwhile: Callable[..., None]
) -> None:
    rng, store = np.random.default_rng(5), place.open()
    one, two = (Service(store, name, Limits()) for name in ("one", "two"))
    one.create(PLAN.to_toml())
    send(two, rng, 500)
    send(one, rng, 60)  # fewer than a cohort, which wait for the end
    assert one.records.pending() == 60
    seen = list[Look]()
    meanwhile(store.looks, "read", lambda: seen.extend(told(two, exact=True).looks))
    one.end(PLAN.name)
    (look,) = seen
    assert (look.fraction, look.last, look.arms[0].found) == (500 / 900, False, GO_ON)
    first, last = told(one).looks
    assert first == look.told()
    assert (last.last, last.spent, last.fraction) == (True, 0.05, 0.6)


@pytest.mark.parametrize("mode", ["one-message", "delta", "sums"])
def test_so_is_one_of_a_trial_whose_records_stay_on_devices(
    place: Place, mode: str, meanwhile: Callable[..., None]
) -> None:
    store = place.open()
    one, two = (Service(store, name, Limits()) for name in ("one", "two"))
    looks = {"information": {"units": 50}, "at": [0.5, 1.0]}
    plan = plan_of(f"looked-at-{mode}", mode, smallest_cell=2, looks=looks)
    one.create(plan.to_toml())
    reports = enrolled(one, plan, 42)
    two.devices.receive(plan.name, "reports", reports[:40])
    one.devices.receive(plan.name, "reports", reports[40:])  # fewer than a cohort
    assert one.devices.pending() == 2
    seen, (whole, _), counts = list[Look](), two.devices.whole(plan), two.devices.look(plan).devices
    # Of somebody who has asked before the end began.
    meanwhile(store.looks, "read", lambda: seen.extend(two.devices._looks(plan, whole, counts)))
    one.end(plan.name)
    (look,) = seen
    first, last = told(one, plan.name).looks
    assert first == look.told()
    assert (look.fraction, look.last, last.last, last.spent) == (0.8, False, True, 0.05)


@pytest.mark.parametrize("mode", ["one-message", "sums"])
def test_devices_of_all_arms_are_information(place: Place, mode: str) -> None:
    service = Service(place.open(), "one", Limits())
    looks = {"information": {"units": 60}, "at": [0.5, 1.0]}
    plan = plan_of(f"three-{mode}", mode, arms=dict.fromkeys("abc", 1 / 3), smallest_cell=2, looks=looks)
    service.create(plan.to_toml())
    service.devices.receive(plan.name, "reports", enrolled(service, plan, 42))
    (look,) = told(service, plan.name, exact=True).looks
    assert look.fraction == 0.7


def enrolled(service: Service, plan: fa.Plan, count: int) -> list[bytes]:
    """The reports of so many devices that have joined, in the arms in turn."""
    arms = list(plan.arms)
    devices = [(new_number(), arms[j % len(arms)], j) for j in range(count)]
    service.devices.receive(plan.name, "enrolments", [encoded(Enrolment(number, arm)) for number, arm, _ in devices])
    return [report(plan, *device) for device in devices]


def report(plan: fa.Plan, number: bytes, arm: str, j: int) -> bytes:
    """Of a device with one record."""
    y = float(j * 37 % 10)
    if plan.mode == "sums":
        return encoded(GroupSums(number, arm, 1, j % plan.groups, packed(np.array([y]))))
    if plan.mode == "delta":
        return encoded(DeviceSums(number, arm, 1, packed(np.array([y]))))
    return encoded(DeviceMoments.of(number, arm, 1, np.array([[1.0, y], [0.0, 0.0]])))


@pytest.mark.parametrize(("table", "read"), [("shards", "all"), ("looks", "read")])
def test_whoever_asks_while_another_server_ends_a_trial_gets_all_of_its_looks(
    place: Place, table: str, read: str, meanwhile: Callable[..., None]
) -> None:
    rng, store = np.random.default_rng(6), place.open()
    one, two = (Service(store, name, Limits()) for name in ("one", "two"))
    one.create(PLAN.to_toml())
    send(one, rng, 500)
    (first,) = told(one).looks
    send(one, rng, 300)
    meanwhile(getattr(store, table), read, lambda: one.end(PLAN.name))
    assert told(two).looks[0] == first
    assert len(told(two).looks) == 2


def test_the_end_takes_a_last_look_that_spends_what_is_left(place: Place) -> None:
    service = Service(place.open(), "main", Limits())
    plan = replaced(PLAN, outcomes=["pain"])  # of which nothing says which way is better
    service.create(plan.to_toml())
    send(service, np.random.default_rng(3), 500, effect=-0.3)
    answer = service.end(PLAN.name).opened()
    assert answer is not None
    (look,) = answer.looks
    assert (look.last, look.spent, look.arms[0].found) == (True, 0.05, HIGHER)
    assert "is shown to be higher" in answer.to_string()


def test_what_cannot_be_looked_at_is_refused() -> None:
    with pytest.raises(PlanError, match="need effects before the end"):
        fa.Plan(**{**LOOKED, "federated": "scores"})
    with pytest.raises(PlanError, match="cannot be combined with `release`"):
        replaced(PLAN, outcomes=[fa.Mean("pain", better="lower", bounds=(0, 10))], release=1.0)
