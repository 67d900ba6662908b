"""Every mode equals the cluster-robust errors of statsmodels on the pooled rows."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import pytest

import foldaway as fa
from clustered import answer, devices_of, everyone, federated, moments, report, results, share_of, with_replies
from devices import assert_row_as_kept_rows
from foldaway.federated.modes.share import ServerShare
from foldaway.federated.replies.published import Published
from foldaway.inference.fit import ArmModel, Fit
from foldaway.inference.variance import covariance
from foldaway.tallies import arms_of
from foldaway.tallies.moments.frame import Frame
from plans import SMALL
from sizes import mostly_slow
from trials import make_trial


def assert_equal_to_kept_rows(effects: fa.Effects, plan: fa.Plan, rows: pd.DataFrame, rtol: float = 1e-9) -> None:
    clustered = [row for row in effects if row.se_kind in ("CR0", "CR1")]
    for row in clustered:
        assert_row_as_kept_rows(row, effects, plan, rows, rtol)
    estimators = 4 if plan.covariates else 2
    assert len(clustered) == 2 * estimators * (len(plan.arms) - 1) * len(plan.outcomes)


CASES = {
    "plain": {},
    "no covariates": {"covariates": 0},
    "three arms, two outcomes": {"arms": 3, "outcomes": 2, "covariates": 2},
    "levels": {"levels": 3, "covariates": 1},
    "weighted": {"weighted": True, "covariates": 2},
    "far from zero": {"shift": 1e6, "covariates": 2},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", mostly_slow([1, 2], 1))
def test_one_message(case: str, seed: int) -> None:
    plan, rows = make_trial(seed, units=True, n=400, **CASES[case])  # type: ignore[arg-type]
    modal = federated(plan, "one-message")
    devices = devices_of(modal, rows)
    share = share_of(modal, [report(modal, kept) for kept in devices], size=[1, 37][seed - 1])
    effects, _ = results(modal, share, everyone(modal, devices))
    assert_equal_to_kept_rows(effects, plan, rows)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", mostly_slow([1, 2], 1))
def test_scores(case: str, seed: int) -> None:
    plan, rows = make_trial(seed, units=True, n=400, **CASES[case])  # type: ignore[arg-type]
    modal = federated(plan, "scores")
    devices = devices_of(modal, rows)
    share = share_of(modal, [moments(kept) for kept in devices], size=[1, 37][seed - 1])
    published = Published.of(share.trial)
    with_replies(share, published, [answer(modal, published, kept) for kept in devices], size=[37, 1][seed - 1])
    effects, integrity = results(modal, share, everyone(modal, devices), published)
    assert_equal_to_kept_rows(effects, plan, rows)
    assert integrity is not None
    assert integrity.verdict == "all here"
    assert integrity.residual is not None
    assert integrity.residual < 0.2


@pytest.mark.parametrize("shift", [0.0, 1e6])
@pytest.mark.parametrize("arms", [2, 3])
def test_delta(arms: int, shift: float) -> None:
    plan, rows = make_trial(arms, units=True, n=600, arms=arms, outcomes=2, covariates=0, shift=shift)
    modal = federated(plan, "delta")
    devices = devices_of(modal, rows)
    share = share_of(modal, [report(modal, kept) for kept in devices])
    effects, _ = results(modal, share, everyone(modal, devices))
    assert_equal_to_kept_rows(effects, plan, rows)


def test_large_covariate_means_cost_no_digits() -> None:
    """statsmodels gets the covariates centred, which changes neither estimate nor error; the devices do not."""
    plan, rows = make_trial(5, units=True, n=800, covariates=2)
    far = rows.assign(x0=rows["x0"] + 1e4 * rows["x0"].std(), x1=rows["x1"] - 1e5 * rows["x1"].std())
    # The same numbers as the devices will see, with exact differences.
    near = far.assign(x0=far["x0"] - far["x0"].iloc[0], x1=far["x1"] - far["x1"].iloc[0])
    for mode in ("one-message", "scores"):
        modal = federated(plan, mode)
        devices = devices_of(modal, far)
        share = share_of(modal, [moments(kept) for kept in devices])
        published = Published.of(share.trial) if mode == "scores" else None
        if published is not None:
            with_replies(share, published, [answer(modal, published, kept) for kept in devices])
        effects, integrity = results(modal, share, everyone(modal, devices), published)
        assert_equal_to_kept_rows(effects, plan, near)
        assert integrity is None or integrity.verdict == "all here"


@pytest.mark.parametrize("mode", ["one-message", "scores"])
def test_shares_of_servers_and_states(mode: str) -> None:
    """Three servers, each stored and read back, merged in either order."""
    plan, rows = make_trial(9, units=True, n=600, covariates=2, outcomes=2)
    modal = federated(plan, mode)
    devices = devices_of(modal, rows)
    thirds = [devices[i::3] for i in range(3)]
    shares = [share_of(modal, [moments(kept) for kept in third]) for third in thirds]
    whole = ServerShare.of(modal)
    for share in shares:
        whole = whole.merge(share)
    published = None
    if mode == "scores":
        published = Published.loads(Published.of(whole.trial).dumps(), modal)
        for share, third in zip(shares, [devices[1::2], [], devices[::2]], strict=True):
            with_replies(share, published, [answer(modal, published, kept) for kept in third])
    read = [ServerShare.of(modal, share.dumps(), published) for share in shares]
    assert [share.dumps() for share in read] == [share.dumps() for share in shares]
    for order in (read, read[::-1]):
        whole = ServerShare.of(modal)
        for share in order:
            whole = whole.merge(share)
        effects, _ = results(modal, whole, everyone(modal, devices), published)
        assert_equal_to_kept_rows(effects, plan, rows)


def test_moments_of_one_device_may_come_in_parts() -> None:
    plan, rows = make_trial(4, units=True, n=500, covariates=1)
    modal = federated(plan, "scores")
    devices = devices_of(modal, rows)
    parts = [
        msgspec.structs.replace(moments(kept._replace(rows=kept.rows[half])), first=half.start == 0)
        for kept in devices
        for half in (slice(0, 2), slice(2, None))
        if len(kept.rows[half])
    ]
    share = share_of(modal, list(np.random.default_rng(1).permutation(np.array(parts, dtype=object))))
    assert sum(share.devices) == len(devices) < len(parts)
    published = Published.of(share.trial)
    with_replies(share, published, [answer(modal, published, kept) for kept in devices])
    effects, integrity = results(modal, share, everyone(modal, devices), published)
    assert_equal_to_kept_rows(effects, plan, rows)
    assert integrity is not None
    assert integrity.verdict == "all here"


PETERSEN = Path(__file__).parents[1] / "data" / "petersen_test_data.txt"


def test_petersens_panel_with_500_firms_as_devices() -> None:
    """y on a constant and x, by firm: coefficients .0297 and 1.0348, errors .0670 and .0506, as published."""
    rows = pd.read_csv(PETERSEN, sep=r"\s+", names=["unit", "year", "x", "y"]).assign(group="a")
    plan = fa.Plan(**{**SMALL, "covariates": ["x"], "federated": "one-message"})
    devices = devices_of(plan, rows)
    assert len(devices) == 500
    share = share_of(plan, [report(plan, kept) for kept in devices])
    fit = Fit([ArmModel(arms_of(share.trial.tallies)[0], np.eye(2))], 0, Frame(np.eye(3, order="F"), 1))
    np.testing.assert_allclose(fit.coef, [0.0297, 1.0348], atol=5e-5)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance(fit, "CR1"))), [0.0670, 0.0506], atol=5e-5)
