"""A device is no more than a device: so many records at most, and means within the plan's bounds."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

import foldaway as fa
from foldaway.effects import Effect
from foldaway.errors import MessageError
from foldaway.federated.messages import Counted, DeviceMoments, DeviceSums, GroupSums, new_number, packed
from foldaway.federated.modes import mode_of
from foldaway.federated.modes.share import Devices, ServerShare
from plans import SMALL

CLAIMED = 10**5


def message(plan: fa.Plan, arm: str, n: int, mean: float, group: int = 0) -> Counted:
    if plan.mode == "delta":
        return DeviceSums(new_number(), arm, n, packed(np.array([n * mean])))
    if plan.mode == "sums":
        return GroupSums(new_number(), arm, n, group, packed(np.array([n * mean])))
    R = np.array([[np.sqrt(n), np.sqrt(n) * mean], [0.0, np.sqrt(n) if n > 1 else 0.0]])
    return DeviceMoments.of(new_number(), arm, n, R)


def honest(plan: fa.Plan, devices: int = 1000) -> ServerShare:
    """A share of devices that the treatment does nothing to: about ten records each."""
    rng, share, mode = np.random.default_rng(3), ServerShare.of(plan), mode_of(plan)
    sent = [
        message(plan, "ab"[i % 2], int(rng.integers(5, 16)), rng.normal(50, 10), int(rng.integers(plan.groups)))
        for i in range(devices)
    ]
    mode.fold(share, sent, [mode.check(share, each, None) for each in sent], None)
    return share


def effect(share: ServerShare) -> tuple[Effect, fa.Effects]:
    counts = dict(zip(share.plan.arms, share.devices, strict=True))
    effects, _ = mode_of(share.plan).results(share, Devices(counts, counts), None)
    kind = "jackknife" if share.plan.mode == "sums" else "CR1"
    return effects.filter(estimator="difference", se_kind=kind)[0], effects


def p_of(share: ServerShare) -> float:
    row, _ = effect(share)
    assert row.p_value is not None
    return row.p_value


@pytest.mark.parametrize("mode", ["delta", "one-message"])
def test_a_device_that_claims_very_many_records_makes_no_effect(mode: Any) -> None:
    plan = fa.Plan(**SMALL, federated=mode)
    unlimited = fa.Plan(**SMALL, federated=fa.Federated(mode, device_records=10**9))
    attack = message(plan, "b", CLAIMED, 55.0)

    # With the limit off, one device has nearly all records of an arm: whatever it says, no error can be told.
    share, modes = honest(unlimited), mode_of(unlimited)
    assert p_of(share) > 0.01
    modes.fold(share, [attack], [modes.check(share, attack, None)], None)
    row, effects = effect(share)
    assert abs(row.estimate or 9.0) > 4
    assert not row.reliable
    assert "those of one unit" in (row.why or "")
    assert any("came from one device: 95 %" in note for note in effects.notes)

    share = honest(plan)
    with pytest.raises(MessageError, match="more records than the plan takes of a device"):
        mode_of(plan).check(share, attack, None)
    # As much as it may say moves the effect by no more than chance does.
    most = message(plan, "b", 1_000, 55.0)
    mode_of(plan).fold(share, [most], [mode_of(plan).check(share, most, None)], None)
    assert p_of(share) > 0.01


BOUNDED: dict[str, Any] = {**SMALL, "outcomes": [{"column": "y", "bounds": (0, 100)}]}


@pytest.mark.parametrize("mode", ["delta", "one-message", "sums"])
def test_means_beyond_the_bounds_are_refused(mode: Any) -> None:
    plan = fa.Plan(**BOUNDED, federated=mode)
    share = honest(plan)
    for mean in (-0.1, 100.1):
        with pytest.raises(MessageError, match="beyond the plan's `bounds`"):
            mode_of(plan).check(share, message(plan, "a", 7, mean), None)
    for mean in (0.0, 100.0):
        mode_of(plan).check(share, message(plan, "a", 7, mean), None)


def test_sums_of_predictions_beyond_their_reach_are_refused() -> None:
    plan = fa.Plan(
        **BOUNDED,
        covariates=[{"column": "x", "bounds": (0, 10)}],
        coefficients={"center": {"x": 5.0}, "slopes": {"y": {"x": 2.0}}},
        federated="sums",
        release=1.0,
    )
    share, mode = ServerShare.of(plan), mode_of(plan)
    good = GroupSums(new_number(), "a", 3, 0, packed(3 * np.array([40.0, 50.0])))  # p = −10, the least there is
    mode.check(share, good, None)
    with pytest.raises(MessageError, match="beyond the plan's `bounds`"):
        mode.check(share, msgspec.structs.replace(good, sums=packed(3 * np.array([40.0, 51.0]))), None)


def test_the_largest_device_is_told_whatever_server_it_came_to() -> None:
    plan = fa.Plan(**SMALL, federated="sums")
    one, other = honest(plan, 400), honest(plan, 200)
    large = message(plan, "a", 900, 50.0)
    mode_of(plan).fold(other, [large], [mode_of(plan).check(other, large, None)], None)
    other = ServerShare.of(plan, other.dumps())
    whole = one.merge(other)
    share = 900 / whole.trial.counts["a"]
    _, effects = effect(whole)
    assert any(f"{100 * share:.2g} %" in note for note in effects.notes)
