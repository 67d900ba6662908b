"""Effects within strata: with units, adjusted, by segment; three sites with levels and shares of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

import foldaway as fa
from foldaway.effects.from_sums import SumsRead
from foldaway.inference.blocked_groups import LONE
from foldaway.inference.levels import difference_of
from foldaway.tallies import grouped_of
from trials import known

KEY = bytes(range(16))
SHARES = {"n": 0.2, "m": 0.5, "s": 0.8}
MEANS = {"n": 0.0, "m": 4.0, "s": 8.0}
BASE: dict[str, Any] = {
    "name": "sites",
    "arm": "g",
    "arms": {"a": 0.5, "b": 0.5},
    "outcomes": ["y"],
    "strata": fa.Strata("site", {site: {"a": 1 - p, "b": p} for site, p in SHARES.items()}),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "records": {},
    "units": {"unit": "u"},
    "weights": {"weight": "w"},
    "covariate": {"covariates": ["x"]},
    "units, covariate": {"unit": "u", "covariates": ["x"]},
    "units, covariate, segments": {"unit": "u", "covariates": ["x"], "segments": ["half"]},
    "units, covariate, missing": {"unit": "u", "covariates": ["x"], "outcomes": [fa.Mean("y", missing="allowed")]},
}


pytestmark = pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")  # records of units are no draws


def records(units: int = 400, seed: int = 1, each: int = 2) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    site = rng.choice(list(SHARES), units, p=[0.5, 0.3, 0.2])
    treated = rng.random(units) < np.array([SHARES[s] for s in site])
    x, own, half = rng.normal(size=units), 0.5 * rng.normal(size=units), rng.random(units) < 0.5
    of = np.repeat(np.arange(units), 1 + rng.poisson(each - 1, units) if each > 1 else 1)
    took = (rng.random(units) < 0.2 + 0.5 * treated)[of]
    y = (np.array([MEANS[s] for s in site]) + 2 * x + own)[of] + took + 0.5 * rng.normal(size=len(of))
    columns = {"g": np.where(treated, "b", "a"), "site": site, "x": x, "half": np.where(half, "p", "q")}
    return {name: column[of] for name, column in columns.items()} | {
        "u": of + 10_000 * seed,
        "y": y,
        "took": took.astype(float),
        "w": rng.uniform(0.5, 2, len(of)),
    }


def folded(settings: dict[str, Any], *batches: dict[str, Any]) -> fa.Trial:
    plan = fa.Plan(**BASE | settings)
    trial = fa.Trial(plan, key=KEY) if plan.keyed else fa.Trial(plan)
    for batch in batches:
        trial.fold(batch)
    return trial


def numbers(effects: fa.Effects) -> list[float]:
    rows = [*effects, *(row for segment in effects.segments for row in segment.effects)]
    return [x for row in rows for x in (row.estimate, row.std_error, row.df)]


@pytest.mark.parametrize("name", SETTINGS)
def test_batches_merging_and_saving_change_nothing(name: str) -> None:
    data, settings = records(), SETTINGS[name]
    cut = len(data["y"]) // 3
    one, two = ({key: column[part] for key, column in data.items()} for part in (slice(cut), slice(cut, None)))
    whole = folded(settings, data)
    expected = numbers(whole.effects())
    for trial in (folded(settings, one, two), folded(settings, one) + folded(settings, two)):
        if "covariates" in settings and "unit" not in settings:  # dealt in turn, to parts for cross-fitting
            assert numbers(trial.effects()) == pytest.approx(expected, rel=0.02)
        else:
            assert numbers(trial.effects()) == pytest.approx(expected, rel=1e-8)
    saved = fa.Trial.loads(whole.dumps(), key=KEY if whole.plan.keyed else None)
    whole.fix()
    assert numbers(saved.effects()) == pytest.approx(numbers(whole.effects()), rel=1e-10)
    for trial in (saved, whole):
        trial.fold(records(seed=2))
    assert numbers(saved.effects()) == pytest.approx(numbers(whole.effects()), rel=1e-8)


def test_one_stratum_is_none() -> None:
    data, one = records(each=1), fa.Strata("site", {"one": BASE["arms"]})
    data["site"] = np.full(len(data["y"]), "one")
    for more, near in (({}, 1e-9), ({"unit": "u"}, 0.03)):
        (within,), (plain,) = (
            folded({"strata": strata, **more}, data).effects().filter(se_kind="jackknife" if more else "welch")
            for strata in (one, None)
        )
        assert within.estimate == pytest.approx(plain.estimate, rel=1e-9)
        assert within.std_error == pytest.approx(plain.std_error, rel=near)


def own_error(trial: fa.Trial, outcome: str, estimator: str) -> float:
    """The error by groups, as it is before uneven arms are read with what they lack of their own spread."""
    (wanted,) = (each for each in trial.plan.outcomes if each.name == outcome)
    levels = SumsRead.of(grouped_of(trial.tallies)).exact((estimator, "jackknife"), wanted)
    return float(np.sqrt(difference_of(levels, 1).variance))


def group_of(unit: int) -> int:
    """Where the trial's key deals a unit, as a trial of this unit alone shows."""
    alone = folded({"unit": "u"}, {"g": ["a"], "site": ["n"], "u": [unit], "y": [0.0]})
    return int(np.argmax(grouped_of(alone.tallies).records[0]))


def within(rows: pd.DataFrame) -> pd.DataFrame:
    """The means by site and arm."""
    return rows.groupby(["site", "g"]).y.mean().unstack()


def test_the_error_with_units_is_the_jackknife_of_kept_rows() -> None:
    """A group's part of a mean moves it as far as half of its bias allows, as `blocked_groups` says."""
    rows = pd.DataFrame(records(90))
    rows["group"] = rows.u.map({unit: group_of(int(unit)) for unit in rows.u.unique()})
    trial = folded({"unit": "u"}, dict(rows.drop(columns="group")))
    (row,) = trial.effects()
    groups, means = fa.Plan(**BASE | {"unit": "u"}).groups, within(rows)
    counts = rows.groupby(["site", "g", "group"]).size()
    effective = (counts.groupby(["site", "g"]).sum() ** 2 / (counts**2).groupby(["site", "g"]).sum()).unstack()
    scale = ((effective - 1) / effective * groups / (groups - 1)) ** 0.25
    size = rows.groupby("site").size() / len(rows)
    assert row.estimate == pytest.approx(np.dot(size, means.b - means.a), rel=1e-12)
    moved = []
    for group in range(groups):
        left = rows[rows.group != group]
        those = means + (within(left) - means) * scale.clip(upper=1)
        moved.append(np.dot(left.groupby("site").size() / len(left), those.b - those.a))
    variance = (groups - 1) * np.var(moved)
    assert own_error(trial, "y", "difference") == pytest.approx(np.sqrt(variance), rel=1e-9)
    assert known(row.std_error) >= np.sqrt(variance) * (1 - 1e-9)  # arms are uneven: a single look takes no less


@pytest.mark.parametrize("units", [False, True])
def test_adjusted_it_leads_and_is_as_precise_as_from_kept_rows(units: bool) -> None:
    data = records(1500, seed=3, each=3 if units else 1)
    settings = {"covariates": ["x"]} | ({"unit": "u"} if units else {})
    rows = pd.DataFrame(data).assign(t=lambda all_: (all_.g == "b") * 1.0)
    size = rows.groupby("site").size() / len(rows)  # sites are centred: t is the effect of them all together
    for site in ("n", "s"):
        rows[f"in_{site}"] = (rows.site == site) - size[site]
    cov = {"cov_type": "cluster", "cov_kwds": {"groups": rows.u}} if units else {"cov_type": "HC1"}
    kept = smf.ols("y ~ t * (in_n + in_s) + x", rows).fit(**cov)
    trial = folded(settings, data)
    for _ in range(2):
        effects = trial.effects()
        (said,) = effects.verdicts()
        assert said.estimator == "adjusted"
        (row,) = effects.filter(estimator="adjusted")
        assert row.std_error == pytest.approx(kept.bse["t"], rel=0.15)
        assert abs(row.estimate - kept.params["t"]) < 0.3 * kept.bse["t"]
        assert "within strata" in trial.report().html
        (plain,) = effects.filter(estimator="difference")
        assert known(plain.std_error) > 2 * known(row.std_error)
        trial.fix()


def test_segments_are_compared_within_strata_too() -> None:
    data = records(900, seed=4)
    for more in ({}, {"unit": "u"}, {"unit": "u", "covariates": ["x"]}):
        effects = folded({"segments": [{"column": "half", "levels": ["p", "q"]}], **more}, data).effects()
        (segment,) = effects.segments
        name = segment.effects[0].estimator
        (row,) = effects.filter(estimator=name)
        for each in segment.effects:
            part = {key: column[data["half"] == each.segment] for key, column in data.items()}
            if name == "difference":  # a trial of the level alone says the same
                (alone,) = folded(more, part).effects()
                assert (each.estimate, each.std_error) == pytest.approx((alone.estimate, alone.std_error), rel=1e-9)
        sizes = [known(each.n) for each in segment.effects]
        mean = np.average([known(each.estimate) for each in segment.effects], weights=sizes)
        assert abs(mean - known(row.estimate)) < 0.3 * known(row.std_error)
        assert segment.differ_p_value is not None
        assert segment.differ_p_value > 0.001


def test_a_stratum_with_one_unit_of_an_arm_withholds_the_effect() -> None:
    data = records(300, seed=5)
    keep = ~((data["site"] == "s") & (data["g"] == "a"))
    keep[np.flatnonzero(~keep)[:1]] = True
    (row,) = folded({"unit": "u"}, {key: column[keep] for key, column in data.items()}).effects()
    assert not row.reliable
    assert row.why == LONE[0].upper() + LONE[1:]


@pytest.mark.parametrize("strata", [None, BASE["strata"]], ids=["whole", "strata"])
@pytest.mark.parametrize("covariates", [[], ["x"]], ids=["plain", "adjusted"])
def test_the_compliers_effect_is_the_ratio_of_the_rows_beside_it(strata: Any, covariates: list[str]) -> None:
    data = records(200, seed=6)
    trial = folded(
        {"unit": "u", "strata": strata, "covariates": covariates, "outcomes": ["y", "took"], "received": "same"},
        data | {"same": data["took"]},
    )
    by = "adjusted" if covariates else "difference"
    for _ in range(2):
        effects = trial.effects()
        y, took = (effects.filter(outcome=name, estimator=by, se_kind="jackknife")[0] for name in ("y", "took"))
        (row,) = effects.filter(outcome="y", estimator="compliers")
        assert row.estimate == pytest.approx(y.estimate / took.estimate, rel=1e-9)
        assert row.first_stage == pytest.approx((took.estimate / own_error(trial, "took", by)) ** 2, rel=1e-3)
        trial.fix()
