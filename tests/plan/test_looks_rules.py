"""A plan's `looks`: what they must be, and with what they cannot go together."""

from __future__ import annotations

from typing import Any

import pytest

import foldaway as fa
from foldaway.errors import PlanError
from foldaway.plan import Information
from plans import LOOKED

LOOKS: dict[str, Any] = LOOKED["looks"]

ONE_OF = "`looks.information` must have one of `units`, `error` and `events`"

OF_LOOKS: list[tuple[dict[str, Any], str]] = [
    ({"information": {}}, ONE_OF),
    ({"information": {"units": 9, "error": 0.1}}, ONE_OF),
    ({"information": {"units": 0}}, "`looks.information.units` must be a whole number from 1"),
    ({"at": [0.5]}, "`looks.at` must rise"),
    ({"at": [0.5, 0.5, 1.0]}, "`looks.at` must rise"),
    ({"at": [0.0, 1.0]}, "`looks.at` must rise"),
    ({"at": []}, "`looks.at` must be a list of shares"),
    ({"spending": "haybittle"}, "`looks.spending` must be"),
    ({"spending": [0.01]}, "`looks.spending` must have a number from 0 to 1 for each look"),
    ({"spending": [0.05, 0.01]}, "`looks.spending` must have a number from 0 to 1 for each look"),
    ({"spending": [0.01, 0.04]}, "`looks.spending` must end with 1 − `confidence`, here 0.05"),
    ({"futility": [0.1, 0.3]}, "`looks.futility` must end with 1 − `looks.power`"),
    ({"futility": [0.3, 0.2]}, "`looks.futility` must have a number from 0 to 1 for each look"),
    ({"power": 0.2}, "`looks.power` must be a number from 0.5"),
]


@pytest.mark.parametrize(("settings", "said"), OF_LOOKS)
def test_looks_that_make_no_sense_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said.replace("[", r"\[")):
        fa.Plan(**{**LOOKED, "looks": LOOKS | settings})


PRIMARY = LOOKED["outcomes"][0]

OF_PLANS: list[tuple[dict[str, Any], str]] = [
    ({"outcomes": [PRIMARY, {"column": "z", "better": "lower"}]}, "decide on one outcome"),
    ({"outcomes": [{**PRIMARY, "question": "alike", "margin": 1}]}, "decide on one outcome"),
    ({"outcomes": [PRIMARY, {"column": "z", "better": "lower", "margin": 1}]}, "no test for guardrails"),
    ({"unit": "u"}, "`looks.information.units` counts units with one record each"),
    ({"correction": "benjamini-hochberg"}, "bound the chance of any false finding"),
    ({"federated": "scores"}, "`looks` need effects before the end"),
    ({"release": 1.0}, "`looks` cannot be combined with `release`"),
]


@pytest.mark.parametrize(("settings", "said"), OF_PLANS)
def test_plans_that_looks_do_not_fit_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        fa.Plan(**{**LOOKED, **settings})


@pytest.mark.parametrize(
    "looks",
    [
        {"information": {"error": 0.2}, "at": [0.3, 0.6, 1.0], "spending": [0.01, 0.02, 0.05]},
        {"information": Information(units=5), "at": (1.0,), "futility": "none"},
        fa.Looks(information={"units": 5}, at=[0.5, 1.0], futility=[0.1, 0.2]),
    ],
)
def test_looks_come_back_from_a_file(looks: Any) -> None:
    settings = {**LOOKED, "looks": looks} | ({"unit": "u"} if isinstance(looks, dict) and "spending" in looks else {})
    plan = fa.Plan(**settings)
    assert fa.Plan.loads(plan.to_toml()) == plan == fa.Plan.loads(plan.to_json())
    assert isinstance(plan.looks, fa.Looks)
    assert isinstance(plan.looks.information, Information)


def test_a_plan_without_looks_keeps_its_fingerprint() -> None:
    settings = {name: value for name, value in LOOKED.items() if name != "looks"}
    assert b"looks" not in fa.Plan(**settings).canonical()
