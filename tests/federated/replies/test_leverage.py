"""CR2 and CR3, whose scores only the devices can correct: against definitions, a jackknife and pyfixest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foldaway as fa
from clustered import answer, devices_of, everyone, federated, moments, results, share_of, with_replies
from foldaway.federated.replies.models import corrected_score
from foldaway.federated.replies.published import Published
from kept_rows import design
from trials import known, make_trial

Array = np.ndarray[Any, Any]


def dense(X: Array, y: Array, units: Array, power: float) -> Array:
    """bread · Σ ũ ũ' · bread with ũ = X_j'(I − H_jj)^power e_j, every matrix written out."""
    bread = np.linalg.inv(X.T @ X)
    e = y - X @ (bread @ (X.T @ y))
    meat = np.zeros_like(bread)
    for unit in np.unique(units):
        Xj, ej = X[units == unit], e[units == unit]
        values, vectors = np.linalg.eigh(np.eye(len(Xj)) - Xj @ bread @ Xj.T)
        u = Xj.T @ (vectors * values**power) @ vectors.T @ ej
        meat += np.outer(u, u)
    return np.asarray(bread @ meat @ bread)


def jackknife(X: Array, y: Array, units: Array) -> Array:
    """(J − 1)/J · Σ (β_(j) − β)(β_(j) − β)', each β_(j) from a fit without unit j."""
    beta = np.linalg.lstsq(X, y, rcond=None)[0]
    names = np.unique(units)
    gaps = [np.linalg.lstsq(X[units != unit], y[units != unit], rcond=None)[0] - beta for unit in names]
    return np.asarray(sum(np.outer(gap, gap) for gap in gaps) * (len(names) - 1) / len(names))


def effects_of(plan: fa.Plan, rows: pd.DataFrame, kind: str) -> fa.Effects:
    modal = federated(plan, "scores", leverage=kind)
    devices = devices_of(modal, rows)
    share = share_of(modal, [moments(kept) for kept in devices])
    published = Published.of(share.trial)
    with_replies(share, published, [answer(modal, published, kept) for kept in devices])
    return results(modal, share, everyone(modal, devices), published)[0]


def centred(plan: fa.Plan, rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(**{x: (rows[x] - rows[x].mean()) / rows[x].std() for x in plan.covariates})


@pytest.mark.parametrize("kind", ["CR2", "CR3"])
@pytest.mark.parametrize("arms", [2, 3])
def test_few_clusters(kind: str, arms: int) -> None:
    """Ten wards an arm: where the correction matters most."""
    plan, rows = make_trial(arms, n=150 * arms, units=True, arms=arms, covariates=2)
    wards = rows.groupby("group")["unit"].transform(lambda units: pd.factorize(units)[0] % 10)
    rows["unit"] = rows["group"] + wards.astype(str)
    rows = centred(plan, rows)
    effects = effects_of(plan, rows, kind)
    units = pd.factorize(rows["unit"])[0]
    found = effects.filter(se_kind=kind)
    assert {row.estimator for row in found} == {"difference", "regression", "interacted", "ipw"}
    for row in found:
        y, X, position = design(plan, rows, row.estimator, row.arm, row.outcome)
        covariance = dense(X, y, units, -0.5) if kind == "CR2" else jackknife(X, y, units)
        assert row.std_error == pytest.approx(np.sqrt(covariance[position, position]), rel=1e-9)
        assert arms < known(row.df) < len(set(units)) - 1
        plain = effects.filter(estimator=row.estimator, arm=row.arm, se_kind="CR0")[0]
        assert row.std_error > plain.std_error
        if kind == "CR3":  # two ways to the same number: no fit is left out in the corrected scores
            J = len(set(units))
            again = dense(X, y, units, -1.0)[position, position] * (J - 1) / J
            assert row.std_error == pytest.approx(np.sqrt(again), rel=1e-9)


@pytest.mark.filterwarnings("ignore::Warning:pyfixest")
def test_cr3_is_that_of_pyfixest() -> None:
    """pyfixest's CRV3, its small-sample factors switched off, is Σ (β_(j) − β)(β_(j) − β)' without (J − 1)/J."""
    pyfixest = pytest.importorskip("pyfixest")
    plan, rows = make_trial(8, n=300, units=True, covariates=1)
    rows = centred(plan, rows)
    rows["treated"] = (rows["group"] == "arm1").astype(float)
    rows["code"] = pd.factorize(rows["unit"])[0]
    none = pyfixest.ssc(k_adj=False, G_adj=False)
    J = rows["code"].nunique()
    effects = effects_of(plan, rows, "CR3")
    formulas = {"difference": "y0 ~ treated", "regression": "y0 ~ treated + x0", "interacted": "y0 ~ treated * x0"}
    for name, formula in formulas.items():
        fit = pyfixest.feols(formula, data=rows, vcov={"CRV3": "code"}, ssc=none)
        (row,) = effects.filter(estimator=name, se_kind="CR3")
        assert row.std_error == pytest.approx(float(fit.se()["treated"]) * np.sqrt((J - 1) / J), rel=1e-9)


@given(st.integers(0, 2**32 - 1), st.sampled_from(["CR2", "CR3"]), st.integers(1, 30), st.integers(1, 4))
def test_a_corrected_score_is_what_it_is_defined_as(seed: int, kind: Any, n: int, q: int) -> None:
    rng = np.random.default_rng(seed)
    X, e = rng.normal(size=(n, q)), rng.normal(size=(n, 2))
    others = rng.normal(size=(5 * q, q))
    bread: Any = np.linalg.inv(X.T @ X + others.T @ others)
    values, vectors = np.linalg.eigh(np.eye(n) - X @ bread @ X.T)
    expected: Any = X.T @ (vectors * values ** (-0.5 if kind == "CR2" else -1.0)) @ vectors.T @ e
    np.testing.assert_allclose(corrected_score(X, e, bread, kind), expected, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(corrected_score(X, e[:, 0], bread, kind), expected[:, 0], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kind", ["CR2", "CR3"])
def test_a_direction_that_a_cluster_alone_determines_is_left_out(kind: Any) -> None:
    """Nobody else has x₁: without the cluster its coefficient does not exist, and its residuals there are zero."""
    rng = np.random.default_rng(3)
    X = np.column_stack([np.ones(6), rng.normal(size=6)])
    others = np.column_stack([np.ones(20), np.zeros(20)])
    bread: Any = np.linalg.inv(X.T @ X + others.T @ others)
    e = rng.normal(size=6)
    e -= X[:, 1] * (X[:, 1] @ e) / (X[:, 1] @ X[:, 1])
    score = corrected_score(X, e, bread, kind)
    assert np.isfinite(score).all()
    hat = np.eye(6) - X @ bread @ X.T
    power = np.linalg.pinv(hat, rtol=1e-8, hermitian=True)
    if kind == "CR2":
        values, vectors = np.linalg.eigh(power)
        power = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    np.testing.assert_allclose(score, X.T @ power @ e, rtol=1e-7, atol=1e-9)
