"""What is told is so coarse that a small change of one record changes nothing in it, to the last bit."""

import numpy as np
import pytest

import foldaway as fa
from foldaway.inference.rounding import STEPS, round_count, two_digits

N = 4_000


def records(rng: np.random.Generator) -> dict[str, list]:
    return {
        "variant": rng.choice(["control", "treatment", "third"], N).tolist(),
        "revenue": ((rng.random(N) < 0.3) * rng.lognormal(3, 1, N)).tolist(),
        "before": rng.normal(size=N).tolist(),
        "user": rng.integers(0, 1_500, N).astype(str).tolist(),
    }


PLANS = {
    "sums by group": {"unit": "user"},
    "independent records": {},
    "moments": {
        "keep": "moments",
        "errors": ["classical", "HC1"],
        "bootstrap": fa.Bootstrap(replicates=200),
        "unit": "user",
    },
    "complete units": {"keep": "moments", "errors": ["CR1"], "unit": "user", "complete_units": True},
}


def trial_of(columns: dict[str, list], settings: dict) -> fa.Trial:
    arms = {"control": 0.4, "treatment": 0.3, "third": 0.3}
    plan = fa.Plan(name="told", arm="variant", arms=arms, outcomes=["revenue"], covariates=["before"], **settings)
    trial = fa.Trial(plan, key=bytes(16) if plan.keyed else None)
    if settings.get("complete_units"):  # a unit has one arm
        order = np.argsort(columns["user"], kind="stable")
        columns = {name: [values[i] for i in order] for name, values in columns.items()}
        columns["variant"] = [["control", "treatment", "third"][int(user) % 3] for user in columns["user"]]
    trial.fold(columns)
    return trial


@pytest.mark.parametrize("settings", PLANS.values(), ids=PLANS)
@pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")
def test_a_small_change_of_one_record_is_not_told(settings):
    columns = records(np.random.default_rng(3))
    other = columns | {"revenue": [columns["revenue"][0] + 1e-6, *columns["revenue"][1:]]}
    ours, theirs = (trial_of(each, settings) for each in (columns, other))
    assert ours.effects().to_json() != theirs.effects().to_json()
    assert ours.effects(rounded=True).to_json() == theirs.effects(rounded=True).to_json()


@pytest.mark.parametrize("settings", PLANS.values(), ids=PLANS)
@pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")
def test_what_is_told_stays_close_to_what_was_found(settings):
    trial = trial_of(records(np.random.default_rng(4)), settings)
    for exact, told in zip(trial.effects(), trial.effects(rounded=True), strict=True):
        assert abs(told.estimate - exact.estimate) <= exact.std_error * 1.06 / STEPS
        assert told.std_error == pytest.approx(exact.std_error, rel=0.06)
        assert told.ci_upper - told.ci_lower == pytest.approx(exact.ci_upper - exact.ci_lower, rel=0.06)
        assert abs(told.n_arm - exact.n_arm) <= max(1, exact.n_arm**0.5)


def test_an_outcome_that_is_the_same_for_everyone_is_not_told():
    columns = records(np.random.default_rng(5)) | {"revenue": [7.0] * N}
    for row in trial_of(columns, PLANS["sums by group"]).effects(rounded=True):
        assert (row.estimate, row.control_level, row.reliable) == (None, None, False)


def test_intervals_lose_less_than_one_percent_of_width():
    spreads = np.exp(np.random.default_rng(6).uniform(0, np.log(10), 20_000))  # any first digits alike
    inflated = two_digits(spreads * (1 + 1 / 192) ** 0.5)
    assert abs(np.mean(inflated / spreads) - 1) < 0.01


def test_counts_are_told_to_about_a_quarter_of_their_root():
    for n in np.unique(np.geomspace(16, 1e8, 500).astype(int)):
        assert abs(round_count(n) - n) <= n**0.5 * 2.5 / STEPS / 2 + 1
