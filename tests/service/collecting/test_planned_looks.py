"""A plan with planned looks, on a server: each look is taken when its information is durable, and only once."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

import foldaway as fa
from foldaway.effects import Effects
from foldaway.effects.looks_taken import BENEFIT, GO_ON, HIGHER
from foldaway.errors import PlanError
from foldaway.service.collecting.record_trials import Sent
from foldaway.service.collecting.service import Service
from foldaway.sources.formats.body import JSON, Limits
from plans import LOOKED, replaced
from stores import Place

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
    back.end(PLAN.name)
    assert [look.arms[0].found for look in told(back).looks] == [GO_ON, BENEFIT]
    assert again.looks.read(PLAN.name) == ()


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
