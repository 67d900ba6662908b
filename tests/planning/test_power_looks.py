"""Power with planned looks: the number of units that looking early costs, and what it saves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

import foldaway as fa
from foldaway.errors import EstimateError
from foldaway.inference.looks.boundaries import crossing, root
from foldaway.inference.looks.planned import LookDesign, bounds_at, chance_of, mean_share, single_needed
from foldaway.planning import Baseline
from plans import LOOKED

BASELINE = Baseline(level=5.0, sd=2.0)


def plan_of(**looks: Any) -> fa.Plan:
    return fa.Plan(**{**LOOKED, "looks": {"information": {"units": 900}, "at": [0.5, 0.75, 1.0], **looks}})


def test_one_look_at_the_end_is_the_plain_trial() -> None:
    plain = fa.power(BASELINE, effect=0.5)
    one = fa.power(BASELINE, plan=plan_of(at=[1.0]), effect=0.5)
    assert one[0].records == plain[0].records
    assert fa.power(BASELINE, plan=plan_of(at=[1.0]), effect=0.5, records=400)[0].power == pytest.approx(
        fa.power(BASELINE, effect=0.5, records=400)[0].power, abs=1e-3
    )


@pytest.mark.parametrize(
    ("looks", "pocock", "obrien_fleming"),
    [(2, (2.178, 1.110), (1.977, 1.008)), (3, (2.289, 1.166), (2.004, 1.017)), (5, (2.413, 1.229), (2.040, 1.028))],
)
def test_the_inflation_is_that_of_jennison_and_turnbull(
    looks: int, pocock: tuple[float, float], obrien_fleming: tuple[float, float]
) -> None:
    # Tables 2.1 to 2.4, two-sided α = 0.05, power 0.8: the boundaries' constants, and the size over that of one look.
    at = [k / looks for k in range(1, looks + 1)]
    for (constant, inflation), power in ((pocock, 0.0), (obrien_fleming, 0.5)):
        upper = [constant / t**power for t in at]
        lower = [-each for each in upper]
        drift = root(lambda d, lower=lower, upper=upper: sum(crossing(at, lower, upper, d).above) - 0.8, 0.0, 9.0)  # type: ignore[misc]
        assert (drift / float(ndtri(0.8) - ndtri(0.025))) ** 2 == pytest.approx(inflation, abs=1.5e-3)


def test_the_chance_and_the_one_that_is_needed_undo_each_other() -> None:
    for futility in (None, "pocock"):
        design = LookDesign((0.5, 0.75, 1.0), 0.05, True, "obrien-fleming", futility, 0.2)
        assert chance_of(design, single_needed(design, 0.9)) == pytest.approx(0.9, abs=1e-9)
    assert chance_of(design, 0.0) == 0
    assert chance_of(design, 1.0) == 1


def test_simulated_trials_have_the_chance_and_the_mean_information() -> None:
    rng, trials, drift = np.random.default_rng(4), 100_000, 3.0
    design = LookDesign((0.3, 0.6, 1.0), 0.05, True, "pocock", "obrien-fleming", 0.2)
    upper, lower = bounds_at(design, design.at, last=True)
    at = np.array(design.at)
    steps = np.diff(at, prepend=0.0)
    z = np.cumsum(rng.normal(drift * steps, np.sqrt(steps), size=(trials, 3)), axis=1) / np.sqrt(at)
    out = (z >= upper) | (z <= np.maximum(lower, -np.array(upper)))
    out[:, -1] = True
    stop = out.argmax(axis=1)
    shown = z[np.arange(trials), stop] >= np.array(upper)[stop]
    single = float(ndtr(drift + ndtri(0.025)))
    assert shown.mean() == pytest.approx(chance_of(design, single), abs=0.005)
    assert at[stop].mean() == pytest.approx(mean_share(design, single), abs=0.005)


def test_size_effect_and_chance_fit_together() -> None:
    plan = plan_of(futility="obrien-fleming")
    size = fa.power(BASELINE, plan=plan, effect=0.5, power=0.9)
    assert size[0].records is not None
    assert size[0].records > (fa.power(BASELINE, effect=0.5, power=0.9)[0].records or 0)
    chance = fa.power(BASELINE, plan=plan, effect=0.5, records=size[0].records)
    assert chance[0].power == pytest.approx(0.9, abs=0.002)
    smallest = fa.power(BASELINE, plan=plan, records=size[0].records, power=0.9)
    assert smallest[0].effect == pytest.approx(0.5, rel=0.005)


def test_what_is_said() -> None:
    told = " ".join(str(fa.power(BASELINE, plan=plan_of(), effect=0.5)).split())
    assert "by 3 planned looks" in told
    assert "of its information on average" in told
    assert "The plan's looks expect 900 units" in told
    with pytest.raises(EstimateError, match="leave out `sequential`"):
        fa.power(BASELINE, plan=plan_of(), effect=0.5, sequential=True)
    with pytest.raises(EstimateError, match="takes one look"):
        fa.power(BASELINE, plan=plan_of(), effect=0.5, goal="alike", margin=1.0)
    by_error = {"information": {"error": 0.2}, "at": [0.5, 1.0]}
    several = fa.Plan(**{**LOOKED, "looks": by_error, "outcomes": [*LOOKED["outcomes"], "z"]})
    with pytest.raises(EstimateError, match="decide on 'y'"):
        fa.power({"z": BASELINE}, plan=several, effect=0.5)
    told = " ".join(str(fa.power({"y": BASELINE, "z": BASELINE}, plan=several, effect=0.5)).split())
    assert "Planned looks decide on y alone" in told
    assert "the plan's looks expect 0.2" in told


def test_several_arms_share_the_error_rate() -> None:
    arms = {"a": 0.4, "b": 0.3, "c": 0.3}
    three = fa.power(BASELINE, plan=fa.Plan(**{**LOOKED, "arms": arms}), effect=0.5)
    alone = fa.power(BASELINE, plan=fa.Plan(**{**LOOKED, "arms": arms, "correction": "none"}), effect=0.5)
    assert (three[0].records or 0) > (alone[0].records or 0)
