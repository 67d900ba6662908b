"""Mode sums: what the coordinator holds are the sums of all rows by arm and group, whatever the way they came."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

import foldaway as fa
from by_groups import by_groups
from clustered import Kept, devices_of, everyone, federated, report, results, share_of
from foldaway.errors import MessageError
from foldaway.federated.messages import GroupSums, packed
from foldaway.federated.modes import mode_of
from foldaway.federated.modes.share import ServerShare
from foldaway.plan.arms import device_group
from foldaway.plan.groups import units_for
from foldaway.plan.vocabulary import MEDIAN_OF_MEANS
from foldaway.tallies import Lean
from foldaway.tallies.sums import Sums
from sizes import mostly_slow
from trials import make_trial

KEY = bytes(range(16))

CASES: dict[str, dict[str, Any]] = {
    "plain": {"covariates": 0},
    "adjusted": {"covariates": 2},
    "three arms, two outcomes, levels": {"arms": 3, "outcomes": 2, "covariates": 1, "levels": 3},
    "far from zero": {"shift": 1e6, "covariates": 1},
}
SOME = pytest.mark.parametrize("case", mostly_slow(CASES, "plain", "three arms, two outcomes, levels"))


class Case:
    """Rows, the plan of their devices, and a trial that has all rows, its units being the devices."""

    def __init__(self, case: str, seed: int = 1) -> None:
        given, self.rows = make_trial(seed, n=400, units=True, **CASES[case])
        self.plan = federated(given, "sums", expected_units=320)
        # Of records a trial knows how many carry an outcome, by which uneven arms are compared: devices do not.
        even = dict.fromkeys(self.plan.arms, 1 / len(self.plan.arms))
        alike = units_for(self.plan.groups, min(even.values()), self.plan.privacy.smallest_cell)  # as many groups
        settings = {**msgspec.structs.asdict(self.plan), "federated": None, "unit": "unit", "arms": even}
        settings["expected_units"] = alike
        self.kept = fa.Plan(**settings)
        self.trial = self.folded(self.rows)
        self.devices = devices_of(self.plan, self.rows)
        units = [mine for _, mine in self.rows.groupby("unit", sort=False)]
        # The trial deals units under a key: where a unit's records go shows in a trial of its own.
        self.groups = [int(sums_of(self.folded(mine)).records.sum(axis=0).argmax()) for mine in units]

    def folded(self, rows: pd.DataFrame) -> fa.Trial:
        trial = fa.Trial(self.kept, key=KEY)
        trial.fold(rows)
        return trial

    def messages(self) -> list[Any]:
        return [report(self.plan, kept, group) for kept, group in zip(self.devices, self.groups, strict=True)]

    def effects(self, share: ServerShare) -> fa.Effects:
        return results(self.plan, share, everyone(self.plan, self.devices))[0]


def sums_of(trial: fa.Trial) -> Sums:
    assert isinstance(trial.tallies, Lean)
    return trial.tallies.sums


@SOME
def test_any_order_batching_and_server_gives_the_sums_of_a_trial_with_all_rows(case: str) -> None:
    made = Case(case)
    rng = np.random.default_rng(1)
    theirs = sums_of(made.trial)
    for size, servers in ((1, 1), (7, 3), (1000, 2)):
        messages = [made.messages()[i] for i in rng.permutation(len(made.devices))]
        whole = ServerShare.of(made.plan)
        for server in range(servers):
            share = share_of(made.plan, messages[server::servers], size)
            read = ServerShare.of(made.plan, share.dumps())
            assert read.dumps() == share.dumps()
            whole = read.merge(whole)
        ours = sums_of(whole.trial)
        np.testing.assert_array_equal(ours.records, theirs.records)
        for column in range(ours.shape.columns):
            size_of_sums = np.abs(theirs.totals(column)).max()
            np.testing.assert_allclose(ours.totals(column), theirs.totals(column), rtol=0, atol=1e-12 * size_of_sums)
        assert whole.devices == [sum(kept.arm == arm for kept in made.devices) for arm in made.plan.arms]


@SOME
def test_effects_are_those_of_all_rows_kept(case: str) -> None:
    """Differences are those of a trial with all rows, and both estimators their definition."""
    made = Case(case)
    effects = made.effects(share_of(made.plan, made.messages()))
    groups = dict(zip(made.rows["unit"].unique(), made.groups, strict=True))
    frame = made.rows.assign(in_group=made.rows["unit"].map(groups))
    digits = 1e-9 if case == "far from zero" else 1e-12
    for theirs in made.trial.effects().filter(estimator="difference", se_kind="jackknife"):
        ours = effects.filter(estimator="difference", arm=theirs.arm, outcome=theirs.outcome)[0]
        for name in ("estimate", "std_error", "df", "ci_lower", "ci_upper", "control_level", "relative_ci_upper"):
            told = getattr(theirs, name)  # none, if a relative effect has no bounds
            assert getattr(ours, name) == (told and pytest.approx(told, rel=digits, abs=digits)), name
    for row in effects:
        if row.estimator == MEDIAN_OF_MEANS:
            continue
        estimate, error = by_groups(made.plan, frame, row.estimator, row.arm, row.outcome, "in_group")
        assert row.estimate == pytest.approx(estimate, rel=1e-8, abs=1e-8 * error)
        assert row.std_error == pytest.approx(error, rel=1e-8)
    assert {row.se_kind for row in effects} == {"jackknife"}
    assert {row.estimator for row in effects} == {
        "difference",
        MEDIAN_OF_MEANS,
        *(["adjusted"] if made.plan.covariates else []),
    }


def test_what_sums_of_devices_cannot_tell_is_said() -> None:
    made = Case("adjusted")
    effects = made.effects(share_of(made.plan, made.messages()))
    for row in effects:
        if row.estimator == MEDIAN_OF_MEANS:  # of too few groups
            continue
        assert row.reliable
        assert (row.anytime_ci_lower, row.anytime_ci_upper, row.anytime_p_value) == (None, None, None)
        assert row.anytime_why is not None
        assert "squares of single records" in row.anytime_why


def test_the_sample_ratio_is_that_of_devices() -> None:
    made = Case("plain")
    effects = made.effects(share_of(made.plan, made.messages()))
    assert effects.sample_ratio is not None
    assert effects.sample_ratio.counted == "units"
    assert effects.sample_ratio.observed == dict(Counter(kept.arm for kept in made.devices))
    lost = [m for m in made.messages() if m.arm != "arm1"] + [m for m in made.messages() if m.arm == "arm1"][:8]
    assert made.effects(share_of(made.plan, lost)).alarm is not None


def test_messages_that_no_device_of_the_plan_sends_are_refused() -> None:
    made = Case("adjusted")
    mode, share = mode_of(made.plan), share_of(made.plan, made.messages())
    good = report(made.plan, made.devices[0], 3)
    assert isinstance(good, GroupSums)
    mode.check(share, good, None)
    values = np.frombuffer(good.sums)
    cases: dict[str, dict[str, Any]] = {
        "a group that the plan has not": {"group": 32},
        "an arm that the plan has not": {"arm": "other"},
        "holds 3 numbers where the plan makes 2": {"sums": packed(np.append(values, 1.0))},
        "not finite": {"sums": packed(values * np.nan)},
        "absurdly large": {"sums": packed(values + good.n * 1e9)},
    }
    for words, change in cases.items():
        with pytest.raises(MessageError, match=words):
            mode.check(share, msgspec.structs.replace(good, **change), None)
    mode.check(share, msgspec.structs.replace(good, sums=packed(values + good.n * 1e3)), None)  # a whale


def test_too_few_devices_for_an_error_get_a_reason() -> None:
    made = Case("plain")
    few = [Kept(arm, np.array([[1.0, float(i)]]), None) for i in range(4) for arm in made.plan.arms]
    effects = made.effects(share_of(made.plan, [report(made.plan, kept, i // 2) for i, kept in enumerate(few)]))
    assert [row.reliable for row in effects] == [False, False]
    assert "only 4 of the groups" in str(effects[0].why)


def test_groups_are_drawn_evenly() -> None:
    plan = Case("plain").plan
    drawn = Counter(device_group(plan.groups, plan.fingerprint, i.to_bytes(16, "big")) for i in range(400))
    assert set(drawn) <= set(range(plan.groups))
    expected = drawn.total() / plan.groups
    statistic = sum((drawn[group] - expected) ** 2 / expected for group in range(plan.groups))
    assert statistic < 80  # χ² with 31 degrees of freedom: once in 300,000 plans
