"""At the edges of what numbers can say: a right number, or none and the reason."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np
import pytest
from scipy import stats

import foldaway as fa
from foldaway.effects import Effect
from foldaway.numerics.block import Floats

Keep = Literal["sums", "moments"]
N = 400
KEPT = pytest.mark.parametrize("keep", ["moments", "sums"])
CONSTANT = "All records of an arm have the same value of this outcome, so it has no standard error."
UNBOUNDED = "The control's level cannot be told from zero, so a relative effect has no bounds."


def columns(seed: int = 1, level: float = 0.0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x = rng.normal(5, 1, N)
    return {"arm": rng.permutation(["a", "b"] * (N // 2)), "x": x, "y": level + x + rng.normal(size=N)}


def effects_of(data: dict[str, Any], keep: Keep, size: int = N, **named: Any) -> fa.Effects:
    """Of a trial that is folded in batches of a size; a warning is an error."""
    covariates = sorted(set(data) - {"arm", "y", "w"})
    plan = fa.Plan(
        name="edges",
        arm="arm",
        arms={"a": 0.5, "b": 0.5},
        outcomes=["y"],
        covariates=covariates,
        weight="w" if "w" in data else None,
        moments=fa.Moments(**named) if keep == "moments" else None,
    )
    trial = fa.Trial(plan, key=bytes(16))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for start in range(0, N, size):
            trial.fold({name: values[start : start + size] for name, values in data.items()})
        return trial.effects()


def by_name(effects: fa.Effects) -> dict[tuple[str, str], Effect]:
    return {(row.estimator, row.se_kind): row for row in effects}


@KEPT
@pytest.mark.parametrize("size", [N, 7, 1])
def test_an_outcome_that_never_varies_has_no_error_and_one_that_hardly_does_has(keep: Keep, size: int) -> None:
    data = columns()
    for row in effects_of(data | {"y": np.full(N, 0.1)}, keep, size).filter(estimator="difference"):
        assert (row.reliable, row.why) == (False, CONSTANT)
    y = 1e15 + 10 * data["y"]  # varies in its last five digits of 16
    rows = effects_of(data | {"y": y}, keep, size).filter(estimator="difference")
    welch = stats.ttest_ind(y[data["arm"] == "b"] - 1e15, y[data["arm"] == "a"] - 1e15, equal_var=False)
    same = [row for row in rows if row.se_kind in ("HC2", "welch")]
    assert len(same) == (2 if keep == "moments" else 1)
    for row in same:
        assert row.estimate is not None
        assert row.statistic == pytest.approx(welch.statistic, rel=1e-9)
        assert row.relative == pytest.approx(row.estimate / 1e15, rel=1e-6)


def test_what_relies_on_the_level_has_an_error_where_nothing_varies() -> None:
    """The inverse-probability effect of a constant c is the mean of ±2c: its error is that of a coin's count."""
    data = columns()
    data["arm"][:50] = "a"
    estimators = ["horvitz_thompson", "difference"]
    rows = by_name(effects_of(data | {"y": np.full(N, 3.0)}, "moments", estimators=estimators))
    z = np.where(data["arm"] == "b", 6.0, -6.0)
    assert rows["horvitz_thompson", "HC1"].estimate == pytest.approx(z.mean(), rel=1e-12)
    assert rows["horvitz_thompson", "HC1"].std_error == pytest.approx(z.std(ddof=1) / np.sqrt(N), rel=1e-12)


@KEPT
@pytest.mark.parametrize("tiny", [1e-300, 1e-310])
def test_numbers_whose_squares_are_lost_are_called_too_small(keep: Keep, tiny: float) -> None:
    data = columns()
    for row in effects_of(data | {"y": tiny * data["y"]}, keep):
        assert row.estimate is not None
        assert row.why is not None
        assert row.why.startswith("The outcome's values are too close to zero to compute with")


def test_small_numbers_are_as_good_as_others() -> None:
    data = columns()
    one, other = (by_name(effects_of(data | {"y": scale * data["y"]}, "moments")) for scale in (1.0, 1e-90))
    for name, row in one.items():
        assert other[name].statistic == pytest.approx(row.statistic, rel=1e-9)
        assert other[name].relative == pytest.approx(row.relative, rel=1e-9)


@KEPT
def test_covariates_without_use_are_named(keep: Keep) -> None:
    """They change no number either."""
    data = columns()
    plain = by_name(effects_of(data, keep))
    for size in (N, 1):
        more = {"x2": 2 * data["x"], "x3": np.full(N, 0.1), "x4": 1e-300 * np.sqrt(data["x"])}
        found = effects_of(data | more, keep, size)
        [note] = [note for note in found.notes if "adjusted" in note]
        assert note.startswith("The effects are not adjusted for “x2” and “x3” and “x4”: each is the same in all")
        for name, row in by_name(found).items():
            assert row.estimate == pytest.approx(plain[name].estimate, rel=1e-9)
            assert row.std_error == pytest.approx(plain[name].std_error, rel=1e-9)
    assert not [note for note in effects_of(data, keep).notes if "adjusted" in note]


@KEPT
def test_one_record_with_all_the_weight_leaves_no_error(keep: Keep) -> None:
    data = columns()
    weight = np.ones(N)
    weight[3] = 1e39
    for row in effects_of(data | {"w": weight}, keep):
        assert row.why == "One record has nearly all of an arm's weight, so there is no standard error."


@KEPT
def test_a_relative_effect_is_withheld_where_the_level_cannot_be_told_from_zero(keep: Keep) -> None:
    data = columns()
    level = data["y"][data["arm"] == "a"].mean()
    for shift, told in ((level - 0.02, False), (0.0, True)):
        for row in effects_of(data | {"y": data["y"] - shift}, keep):
            assert row.reliable
            share = (row.relative, row.relative_std_error, row.relative_ci_lower, row.relative_ci_upper)
            assert all(number is not None for number in share) if told else share == (None,) * 4
            assert row.relative_why == (None if told else UNBOUNDED)


def test_relative_intervals_are_the_same_from_moments_and_from_sums() -> None:
    """Fieller's, with Welch's error, for a difference of means."""
    data = columns(2, level=-4.0)
    moments, sums = by_name(effects_of(data, "moments")), by_name(effects_of(data, "sums"))
    one, other = moments["difference", "HC2"], sums["difference", "welch"]
    assert one.df == pytest.approx(other.df, rel=1e-9)
    assert one.relative == pytest.approx(other.relative, rel=1e-9)
    # The quantiles differ: one set has the degrees of freedom of the difference, the other those of each ratio.
    for end in ("relative_ci_lower", "relative_ci_upper"):
        assert getattr(one, end) == pytest.approx(getattr(other, end), rel=1e-3)


# Covariates that nearly depend on one another.


def powers() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    x = 100 + rng.uniform(-1, 1, N)
    y: Floats = x + rng.normal(size=N) * (1 + np.abs(x - 100))
    return {"arm": rng.choice(["a", "b"], N), **{f"x{p}": x**p for p in (1, 2, 3, 4)}, "y": y}


@KEPT
def test_no_error_depends_on_batches(keep: Keep) -> None:
    data = powers()
    whole = by_name(effects_of(data, keep))
    for size in (50, 7, 1):
        for name, row in by_name(effects_of(data, keep, size)).items():
            assert row.std_error is not None
            assert row.estimate == pytest.approx(whole[name].estimate, abs=1e-7 * row.std_error)
            assert row.std_error == pytest.approx(whole[name].std_error, rel=1e-7)
