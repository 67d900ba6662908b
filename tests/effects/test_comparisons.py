"""Any arm against any other, and all arms at once."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats

import foldaway as fa
from foldaway.effects.door import OWN, TOLD
from foldaway.inference.differing import arms_differ
from foldaway.inference.levels import Levels
from foldaway.inference.rounding import INFLATION, STEPS, to_steps, two_digits

KEY = bytes(range(16))
SETTINGS: dict[str, Any] = {
    "name": "arms",
    "arm": "g",
    "arms": {"a": 0.4, "b": 0.3, "c": 0.3},
    "outcomes": ["y"],
    "covariates": ["x"],
}


def records(n: int, gap: float = 0.5, seed: int = 1) -> dict[str, Any]:
    chance = np.random.default_rng(seed)
    g = chance.choice(["a", "b", "c"], n, p=[0.4, 0.3, 0.3])
    x = chance.normal(0, 1, n)
    return {
        "g": g, "x": x, "y": 3 + x + gap * (g == "c") + chance.normal(0, 1, n), "u": np.arange(n),
        "s": chance.choice(["p", "q"], n), "t": chance.choice(["i", "j"], n),
    }  # fmt: skip


def folded(data: dict[str, Any], **settings: Any) -> fa.Trial:
    trial = fa.Trial(fa.Plan(**{**SETTINGS, **settings}), key=KEY)
    trial.fold(data)
    return trial


STRATA = fa.Strata("s", {"p": dict(SETTINGS["arms"]), "q": dict(SETTINGS["arms"])})


@pytest.mark.parametrize(
    "settings", [{}, {"unit": "u"}, {"moments": {}}, {"covariates": [], "strata": STRATA, "segments": ["t"]}]
)
def test_another_control_is_another_order_of_the_arms(settings: dict[str, Any]) -> None:
    data = records(900)
    turned = folded(data, **settings).effects(control="b")
    arms = {arm: SETTINGS["arms"][arm] for arm in ("b", "a", "c")}
    first = folded(data, **{**settings, "arms": arms}).effects()
    assert [(row.arm, row.control, row.se_kind) for row in turned] == [
        (row.arm, row.control, row.se_kind) for row in first
    ]
    for one, two in zip(turned, first, strict=True):
        assert (one.estimate, one.std_error, one.control_level) == pytest.approx(
            (two.estimate, two.std_error, two.control_level), rel=1e-9
        )
    for by, same in zip(turned.segments, first.segments, strict=True):
        assert [row.estimate for row in by.effects] == pytest.approx([row.estimate for row in same.effects])
    with pytest.raises(fa.EstimateError, match="no arm 'd'; the arms are a, b, c"):
        folded(data).effects(control="d")


def test_the_joint_test_is_the_wald_test_of_kept_rows() -> None:
    data = records(900)
    test = folded(data, covariates=[]).effects().joint["y"]
    means = {arm: data["y"][data["g"] == arm] for arm in "abc"}
    variances = {arm: y.var(ddof=1) / len(y) for arm, y in means.items()}
    apart = np.array([means[arm].mean() - means["a"].mean() for arm in "bc"])
    covariance = np.diag([variances["b"], variances["c"]]) + variances["a"]
    assert test.statistic == pytest.approx(apart @ np.linalg.solve(covariance, apart) / 2, rel=1e-10)
    assert test.df == 2
    assert test.p_value < 0.001
    effects = folded(data, unit="u").effects()
    assert "a joint test of all 2 arms against the control gives p below 0.001" in " ".join(
        effects.to_string(all=True).split()
    )
    assert fa.Effects.from_json(effects.to_json()).joint == effects.joint


@pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")
@pytest.mark.parametrize("settings", [{}, {"unit": "u"}, {"covariates": []}], ids=["adjusted", "units", "plain"])
def test_there_is_no_joint_test_where_an_arm_has_no_error(settings: dict[str, Any]) -> None:
    data = records(300)
    data["g"][data["g"] == "b"] = "a"
    data["g"][0] = "b"
    for rounded in (False, True):
        effects = folded(data, **settings).read(TOLD if rounded else OWN)
        assert effects.filter(arm="c")[0].reliable
        assert effects.joint == fa.Effects.from_json(effects.to_json()).joint == {}


def test_the_joint_test_is_chi_squared_where_degrees_of_freedom_are_infinite() -> None:
    test = arms_differ(Levels(np.array([10.0, 11.0, 10.1]), np.eye(3) / 16, np.zeros((3, 3)), np.array([99] * 3)))
    assert test is not None
    assert np.isinf(test.df_error)
    assert test.p_value == pytest.approx(stats.chi2.sf(2 * test.statistic, 2), rel=1e-12)
    effects = dataclasses.replace(folded(records(300)).effects(), joint={"y": test})
    assert fa.Effects.from_json(effects.to_json()).joint == effects.joint


def test_the_joint_test_does_not_depend_on_the_level() -> None:
    data = records(300)
    y = np.round(16 * data["y"]) / 16  # so that no digit is lost beside a level of 2^46
    one, other = (folded({**data, "y": y + far}, covariates=[]).effects().joint["y"] for far in (0.0, 2.0**46))
    assert other.statistic == pytest.approx(one.statistic, rel=1e-9)


def test_what_others_are_told_of_the_joint_test_follows_from_rounded_levels() -> None:
    data = records(900)
    told = folded(data, covariates=[]).read(TOLD)
    y = [data["y"][data["g"] == arm] for arm in "abc"]
    n = np.array([len(each) for each in y])
    errors = two_digits(INFLATION * np.array([each.std(ddof=1) for each in y]) / np.sqrt(n))
    means = to_steps(np.array([each.mean() for each in y]), errors / STEPS)
    assert [row.estimate for row in told] == pytest.approx([means[1] - means[0], means[2] - means[0]])
    test = arms_differ(Levels(means, np.diag(errors**2), two_digits(np.diag(1 / (n - 1))), n))
    assert test is not None
    same = told.joint["y"]
    assert (same.statistic, same.df_error, same.p_value) == pytest.approx((test.statistic, test.df_error, test.p_value))


def test_the_joint_test_keeps_its_level() -> None:
    p = [folded(records(200, 0.0, seed), unit="u").effects().joint["y"].p_value for seed in range(60)]
    assert sum(each < 0.05 for each in p) <= 8
    assert 18 <= sum(each < 0.5 for each in p) <= 42


def test_hc3_of_differences_is_that_of_kept_rows() -> None:
    data = records(300)
    row = folded(data, moments={"errors": ["HC3", "HC1"]}).effects().filter(se_kind="HC3", arm="c")[0]
    X = np.column_stack([np.ones(300), data["g"] == "b", data["g"] == "c"]).astype(float)
    assert row.std_error == pytest.approx(sm.OLS(data["y"], X).fit(cov_type="HC3").bse[2], rel=1e-11)
