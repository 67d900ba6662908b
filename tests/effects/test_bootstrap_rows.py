"""The rows of the bootstrap: their numbers by other means, when they are withheld, how they are shown."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import stats

from foldaway.effects.headline import comparisons
from foldaway.inference.intervals import holm
from foldaway.paper import ipw
from plans import replaced
from resampling import B, folded, of_records, of_units, unit_weights, with_bootstrap
from sizes import mostly_slow
from trials import make_trial

pytestmark = pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")


def mean_of(arm: str, rows: pd.DataFrame, outcome: str, w: Any) -> Any:
    of = (rows["group"] == arm).to_numpy()
    y = rows[outcome].to_numpy()[of]
    return (w[of] * y[:, None]).sum(axis=0) / w[of].sum(axis=0)


@pytest.mark.parametrize("confidence", mostly_slow([0.95, 0.8], 0.8))
def test_the_rows_are_those_of_a_bootstrap_by_hand(confidence: float) -> None:
    plan, rows = of_units(shift=10)
    plan = with_bootstrap(plan, B, confidence=confidence, records_per_unit="many")
    plan = replaced(plan, estimators=["difference", "horvitz_thompson"])
    effects = folded(plan, rows).effects()
    w = unit_weights(plan, rows["unit"]).astype(float)
    share = plan.arms["arm1"]
    # Effective units from the weights; what is normal for many of them is t for few, and replicates spread too little.
    arms = [(rows["group"] == arm).to_numpy() for arm in plan.arms]
    e = np.array([arm.sum() ** 2 / np.mean((w[arm].sum(axis=0) - arm.sum()) ** 2) for arm in arms])
    df = (1 / e).sum() ** 2 / np.sum(1 / e**2 / (e - 1))
    stretch = 1 / np.sqrt(1 - np.sum(1 / e**2) / np.sum(1 / e))
    tail = stats.norm.sf(stretch * stats.t.ppf(0.5 + confidence / 2, df))
    for outcome in plan.measured:
        treated = np.where(rows["group"] == "arm1", 1.0, 0.0)
        y = rows[outcome].to_numpy()
        z = ipw(y, treated, share)
        z_control = (1 - treated) * y / (1 - share)
        control = mean_of("arm0", rows, outcome, w)
        by_hand = {
            "difference": (mean_of("arm1", rows, outcome, w) - control, control),
            "horvitz_thompson": (w.T @ z / w.sum(axis=0), w.T @ z_control / w.sum(axis=0)),
        }
        for estimator, (found, levels) in by_hand.items():
            row = effects.filter(outcome=outcome, estimator=estimator, se_kind="bootstrap")[0]
            other = effects.filter(outcome=outcome, estimator=estimator, se_kind="HC1")[0]
            assert (row.estimate, row.n, row.n_arm, row.relative, row.control_level) == (
                other.estimate,
                other.n,
                other.n_arm,
                other.relative,
                other.control_level,
            )
            tails = [tail, 1 - tail]
            assert row.std_error == pytest.approx(found.std(ddof=1), rel=1e-9)
            assert row.df == pytest.approx(df, rel=1e-9)
            student = stats.t(df, row.estimate, found.std(ddof=1))
            assert (row.ci_lower, row.ci_upper) == pytest.approx(student.interval(confidence), rel=1e-9)
            assert row.p_value == pytest.approx(2 * stats.t.sf(abs(row.estimate) / found.std(ddof=1), df), rel=1e-8)
            percentile = row.percentile_ci_lower, row.percentile_ci_upper
            assert percentile == pytest.approx(tuple(np.quantile(found, tails, method="weibull")), rel=1e-9)
            fewer = min((found <= 0).sum(), (found >= 0).sum())
            p = 2 * stats.t.cdf(stats.norm.ppf((fewer + 1) / (B + 1)) / stretch, df)
            assert row.percentile_p_value == pytest.approx(p, rel=1e-9)
            relative = found / levels
            assert row.relative_std_error == pytest.approx(relative.std(ddof=1), rel=1e-8)
            interval = row.relative_ci_lower, row.relative_ci_upper
            around = stats.t(df, row.relative, relative.std(ddof=1)).interval(confidence)
            assert interval == pytest.approx(around, rel=1e-8)
            interval = row.relative_percentile_ci_lower, row.relative_percentile_ci_upper
            assert interval == pytest.approx(tuple(np.quantile(relative, tails, method="weibull")), rel=1e-8)
            assert (row.replicates, row.replicates_left_out) == (B, 0)
            assert other.percentile_ci_lower is None
            assert other.replicates is None


def test_a_clustered_bootstrap_agrees_with_clustered_errors() -> None:
    plan, rows = make_trial(16, n=6_000, units=True, covariates=1, shift=10)
    effects = folded(with_bootstrap(plan, 2_000), rows).effects()
    for estimator in ("ipw", "difference", "regression", "interacted"):
        ours, theirs = (effects.filter(estimator=estimator, se_kind=kind)[0] for kind in ("bootstrap", "CR1"))
        assert ours.std_error == pytest.approx(theirs.std_error, rel=0.06)
        assert ours.relative_std_error == pytest.approx(theirs.relative_std_error, rel=0.06)
        by_record = effects.filter(estimator=estimator, se_kind="HC1")[0]
        assert abs(by_record.std_error / theirs.std_error - 1) > 0.08  # and these are not the same thing


def test_no_errors_until_there_are_more_records_than_replicates() -> None:
    plan, rows = of_records(n=6 * B)
    few = rows.groupby("group").head(B)  # of every arm
    trial = folded(plan, few)
    withheld = trial.effects()
    rows_of = {kind: withheld.filter(se_kind=kind) for kind in ("bootstrap", "HC1")}
    for row, told in zip(rows_of["bootstrap"], rows_of["HC1"], strict=True):
        assert row.estimate == told.estimate
        assert (row.reliable, told.reliable) == (False, True)
        assert (row.std_error, row.percentile_ci_lower, row.replicates) == (None, None, None)
    [reason] = {row.why for row in rows_of["bootstrap"]}
    assert reason is not None
    assert reason.startswith(f"Bootstrap errors need more records in every arm than the {B} replicates")
    assert " ".join(withheld.to_string(all=True).split()).count(reason) == 1
    trial.fold(rows.drop(few.index))
    shown = trial.effects()
    assert [row.reliable for row in shown.filter(se_kind="bootstrap")] == [True] * 4
    assert "Bootstrap errors need" not in shown.to_string(all=True)


def test_an_outcome_without_variance_has_no_error_and_no_finding() -> None:
    plan, rows = of_units(outcomes=1)
    constant = rows.assign(y0=7.3)
    effects = folded(plan, constant[:301], constant[301:]).effects()
    for estimator in ("difference", "regression", "interacted"):
        row = effects.filter(estimator=estimator, se_kind="bootstrap")[0]
        assert row.estimate == pytest.approx(0, abs=1e-13)
        assert (row.std_error, row.p_value, row.percentile_ci_lower, row.percentile_p_value) == (None,) * 4
    assert "no verdict" in str(effects)


def test_holm_adjusts_over_the_bootstrap_rows_of_all_arms_and_outcomes() -> None:
    plan, rows = make_trial(17, n=1_800, arms=3, outcomes=2, covariates=1)
    effects = folded(with_bootstrap(plan, B), rows).effects()
    for estimator in ("ipw", "difference", "regression", "interacted"):
        family = effects.filter(estimator=estimator, se_kind="bootstrap")
        assert len(family) == 4
        assert [row.p_adjusted for row in family] == pytest.approx(holm(np.array([row.p_value for row in family])))
    assert "bootstrap" in effects.to_string(all=True)


def test_rows_are_printed_and_exported() -> None:
    plan, rows = of_units(outcomes=1, shift=10)
    effects = folded(plan, rows).effects()
    [found] = comparisons(effects)
    assert {row.estimator: row.se_kind for row in found.best} == {
        "difference": "jackknife",
        "adjusted": "jackknife",
        **dict.fromkeys(("regression", "interacted", "ipw"), "bootstrap"),  # the best that units in pieces have
    }
    assert (found.lead.estimator, found.lead.se_kind) == ("adjusted", "jackknife")
    for text in (effects.to_string(all=True), effects.to_html(all=True)):
        assert "HC1" in text
        assert "bootstrap" in text
    columns = {
        "percentile_ci_lower",
        "percentile_ci_upper",
        "percentile_p_value",
        "relative_percentile_ci_lower",
        "relative_percentile_ci_upper",
        "replicates",
        "replicates_left_out",
    }
    table = effects.to_arrow()
    assert columns <= set(table.column_names)
    assert {table.schema.field(name).type for name in ("replicates", "replicates_left_out")} == {pa.int64()}
    frame = effects.to_pandas()
    is_bootstrap = frame["se_kind"] == "bootstrap"
    for column in columns:
        assert frame[column].notna().tolist() == is_bootstrap.tolist()
    row = effects.filter(estimator="difference", se_kind="bootstrap")[0]
    exported = frame[is_bootstrap & (frame["estimator"] == "difference")].iloc[0]
    assert (exported["percentile_ci_lower"], exported["replicates"]) == (row.percentile_ci_lower, B)
    assert '"percentile_p_value":' in effects.to_json()


def test_a_number_of_replicates_is_short_for_poisson_weights() -> None:
    plan, rows = of_units()
    short = msgspec.structs.replace(plan, moments={"bootstrap": B})
    assert folded(short, rows).dumps() == folded(with_bootstrap(plan, B, "poisson"), rows).dumps()
