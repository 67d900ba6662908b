"""Devices that withdraw: what is left equals a trial that never had them, from kept tallies alone."""

from __future__ import annotations

from typing import Any

import pytest

from clustered import devices_of, everyone, federated, report, results, share_of
from foldaway.federated.modes import mode_of
from foldaway.federated.modes.share import ServerShare
from foldaway.numerics.block import Floats
from foldaway.tallies.moments import Arms
from sizes import mostly_slow
from trials import make_trial

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "one-message": ("one-message", {"levels": 3, "covariates": 2}),
    "one-message, weighted": ("one-message", {"weighted": True, "covariates": 2}),
    "one-message, far from zero": ("one-message", {"shift": 1e6, "covariates": 1}),
    "delta, three arms": ("delta", {"arms": 3, "outcomes": 2, "covariates": 0}),
    "sums": ("sums", {"outcomes": 2, "covariates": 0}),
    "sums, adjusted": ("sums", {"covariates": 2}),
    "sums, far from zero": ("sums", {"shift": 1e6, "covariates": 0}),
}


@pytest.mark.parametrize("case", mostly_slow(CASES, "one-message", "sums, adjusted"))
def test_effects_are_those_of_a_trial_without_them(case: str) -> None:
    mode, settings = CASES[case]
    plan, rows = make_trial(3, units=True, n=600, **settings)
    plan = federated(plan, mode)
    devices = devices_of(plan, rows)
    messages: list[Any] = [report(plan, kept, i % 16) for i, kept in enumerate(devices)]
    gone, stay = slice(0, None, 3), [i for i in range(len(devices)) if i % 3]
    share = share_of(plan, messages)
    withdraw(share, messages[gone])
    share = ServerShare.of(plan, share.settled().dumps())  # as it is stored
    there = [devices[i] for i in stay]
    without = share_of(plan, [messages[i] for i in stay])
    assert share.devices == without.devices
    found, expected = (results(plan, each, everyone(plan, there))[0] for each in (share, without))
    assert len(found) == len(expected) > 0
    for row, other in zip(found, expected, strict=True):
        assert (row.outcome, row.arm, row.estimator, row.se_kind) == (
            other.outcome,
            other.arm,
            other.estimator,
            other.se_kind,
        )
        error = other.std_error
        if row.estimator == "median_of_means":  # an estimate and no more, in this trial of few devices
            assert (row.estimate, row.std_error) == (other.estimate, error)
            continue
        assert error is not None
        assert row.estimate == pytest.approx(other.estimate, rel=1e-9, abs=1e-9 * error)
        assert row.std_error == pytest.approx(error, rel=1e-9)
        assert row.df == pytest.approx(other.df, rel=1e-9)


def test_of_an_arm_that_all_have_left_nothing_is_left() -> None:
    plan, rows = make_trial(5, units=True, n=200, covariates=0)
    for mode in ("one-message", "sums"):
        of_mode = federated(plan, mode)
        share = share_of(of_mode, [report(of_mode, kept, i % 16) for i, kept in enumerate(devices_of(of_mode, rows))])
        arm = next(iter(plan.arms))
        withdraw(
            share,
            [report(of_mode, kept, i % 16) for i, kept in enumerate(devices_of(of_mode, rows)) if kept.arm == arm],
        )
        left = share.settled()
        assert left.trial.counts[arm] == left.devices[0] == 0
        assert left.trial.tallies.counts[1] == share.trial.tallies.counts[1] > 0


def test_of_a_level_that_only_those_had_who_left_no_rounding_passes_for_one() -> None:
    plan, rows = make_trial(5, units=True, n=200, covariates=1, levels=3)
    plan = federated(plan, "one-message")
    column = len(plan.regressors) - 1
    devices = devices_of(plan, rows)
    messages: list[Any] = [report(plan, kept) for kept in devices]
    share = share_of(plan, messages)
    withdraw(share, [m for m, kept in zip(messages, devices, strict=True) if kept.rows[:, column].any()])
    tallies = share.settled().trial.tallies
    assert isinstance(tallies, Arms)
    assert tallies.n > 0
    assert not any(arm.raw_factor()[:, column].any() for arm in tallies.by_arm)


def withdraw(share: ServerShare, messages: list[Any]) -> None:
    mode = mode_of(share.plan)
    share.out = ServerShare.of(share.plan)
    values: list[Floats] = [mode.numbers(share.plan, message) for message in messages]
    mode.fold(share.out, messages, values, None)
