"""What is told is so coarse that a small change of one record changes nothing in it, to the last bit."""

from typing import Any

import numpy as np
import pytest

import foldaway as fa
from foldaway.effects.door import OWN, TOLD
from foldaway.inference.rounding import STEPS, round_count, two_digits
from foldaway.plan import Bootstrap

N = 4_000


def records(rng: np.random.Generator) -> dict[str, list[Any]]:
    return {
        "variant": rng.choice(["control", "treatment", "third"], N).tolist(),
        "revenue": ((rng.random(N) < 0.3) * rng.lognormal(3, 1, N)).tolist(),
        "before": rng.normal(size=N).tolist(),
        "user": rng.integers(0, 1_500, N).astype(str).tolist(),
    }


PLANS: dict[str, dict[str, Any]] = {
    "sums by group": {"unit": "user"},
    "independent records": {},
    "moments": {
        "moments": {"errors": ["classical", "HC1"], "bootstrap": Bootstrap(replicates=200)},
        "unit": "user",
    },
    "complete units": {"moments": {"errors": ["CR1"]}, "unit": "user", "records_per_unit": "together"},
}


def trial_of(columns: dict[str, list[Any]], settings: dict[str, Any]) -> fa.Trial:
    arms = {"control": 0.4, "treatment": 0.3, "third": 0.3}
    plan = fa.Plan(name="told", arm="variant", arms=arms, outcomes=["revenue"], covariates=["before"], **settings)
    trial = fa.Trial(plan, key=bytes(16) if plan.keyed else None)
    if settings.get("records_per_unit") == "together":  # a unit has one arm
        order = np.argsort(columns["user"], kind="stable")
        columns = {name: [values[i] for i in order] for name, values in columns.items()}
        columns["variant"] = [["control", "treatment", "third"][int(user) % 3] for user in columns["user"]]
    trial.fold(columns)
    return trial


@pytest.mark.parametrize("settings", PLANS.values(), ids=PLANS)
@pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")
def test_a_small_change_of_one_record_is_not_told(settings: dict[str, Any]) -> None:
    columns = records(np.random.default_rng(3))
    other = columns | {"revenue": [columns["revenue"][0] + 1e-6, *columns["revenue"][1:]]}
    ours, theirs = (trial_of(each, settings) for each in (columns, other))
    assert ours.effects().to_json() != theirs.effects().to_json()
    assert ours.read(TOLD).to_json() == theirs.read(TOLD).to_json()


@pytest.mark.parametrize("settings", PLANS.values(), ids=PLANS)
@pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")
def test_what_is_told_stays_close_to_what_was_found(settings: dict[str, Any]) -> None:
    trial = trial_of(records(np.random.default_rng(4)), settings)
    exact, told = (trial.read(TOLD if rounded else OWN).to_arrow().to_pandas() for rounded in (False, True))
    assert np.all(np.abs(told.estimate - exact.estimate) <= exact.std_error * 1.06 / STEPS)
    assert told.std_error.to_numpy() == pytest.approx(exact.std_error.to_numpy(), rel=0.06)
    width, told_width = (each.ci_upper - each.ci_lower for each in (exact, told))
    assert told_width.to_numpy() == pytest.approx(width.to_numpy(), rel=0.06)
    assert np.all(np.abs(told.n_arm - exact.n_arm) <= np.maximum(1, exact.n_arm**0.5))


@pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")
def test_an_outcome_that_is_the_same_for_everyone_is_not_told() -> None:
    columns = records(np.random.default_rng(5)) | {"revenue": [7.0] * N}
    for row in trial_of(columns, PLANS["sums by group"]).read(TOLD):
        assert (row.estimate, row.control_level, row.reliable) == (None, None, False)


def test_intervals_lose_less_than_one_percent_of_width() -> None:
    spreads = np.exp(np.random.default_rng(6).uniform(0, np.log(10), 20_000))  # any first digits alike
    inflated = two_digits(spreads * (1 + 1 / 192) ** 0.5)
    assert abs(np.mean(inflated / spreads) - 1) < 0.01


def test_counts_are_told_to_about_a_quarter_of_their_root() -> None:
    for n in np.unique(np.geomspace(16, 1e8, 500).astype(int)):
        assert abs(round_count(n) - n) <= n**0.5 * 2.5 / STEPS / 2 + 1


def test_the_fewer_carry_an_outcome_the_more_coarsely_it_is_told() -> None:
    """With one buyer, level and error are both v/n: told to a quarter of it, they would give the amount away."""
    amounts = np.random.default_rng(7).lognormal(3, 1, 100)
    within = 0
    for amount in amounts:
        columns = {"variant": ["control", "treatment"] * 100, "revenue": [0.0] * 199 + [float(amount)]}
        plan = fa.Plan(name="one", arm="variant", arms={"control": 0.5, "treatment": 0.5}, outcomes=["revenue"])
        trial = fa.Trial(plan)
        trial.fold(columns)
        told = trial.read(TOLD)[0]
        level, error = (told.control_level or 0.0) + (told.estimate or 0.0), told.std_error
        guesses = [100 * each for each in (level, error) if each]
        within += any(abs(guess / amount - 1) < 0.1 for guess in guesses)
    assert within / len(amounts) < 0.25


@pytest.mark.parametrize("shift", [0.0, 1_000.0])
def test_one_value_that_outweighs_all_others_is_told_coarsely(shift: float) -> None:
    """Also where everybody has something: the spread is then that of the one who differs."""
    rng = np.random.default_rng(8)
    plan = fa.Plan(name="whale", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], unit="u")
    trial = fa.Trial(plan, key=bytes(16))
    values = shift + rng.normal(size=2_000)
    values[0] += 5_000
    trial.fold({"g": ["a", "b"] * 1_000, "y": values.tolist(), "u": list(range(2_000))})
    exact, told = (trial.read(TOLD if rounded else OWN).filter(se_kind="welch")[0] for rounded in (False, True))
    assert exact.std_error is not None
    assert told.std_error is not None
    assert exact.std_error * 1_000 == pytest.approx(5_000, rel=0.02)  # which would tell it
    assert abs(told.std_error / exact.std_error - 1) > 0.06


def test_merged_trials_tell_nothing_new_before_they_have_grown() -> None:
    plan = fa.Plan(name="parts", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
    rng = np.random.default_rng(9)

    def part(n: int) -> fa.Trial:
        trial = fa.Trial(plan)
        trial.fold({"g": ["a", "b"] * (n // 2), "y": rng.normal(size=n).tolist()})
        return trial

    one, other = part(400), part(600)
    one.told(), other.told()
    with pytest.raises(fa.FoldawayError, match="no effects yet"):
        (one + other + part(2)).told()
    assert (one + other + part(200)).told().counts == {"a": 600, "b": 600}
