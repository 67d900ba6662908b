"""The trials whose effects have golden files: each a plan and how many records, fixed data and a fixed key."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import pandas as pd

import foldaway as fa
from clustered import answer, devices_of, everyone, moments, report, share_of, with_replies
from foldaway.effects.door import OWN, TOLD
from foldaway.federated.modes import mode_of
from foldaway.federated.replies.published import Published
from foldaway.simulation.demo import PLAN as DEMO
from goldens.rows import rows_for
from plans import CALIBRATED, CUT, FULL, SMALL, in_parts

KEY = bytes(range(16))

# What files call the four ways to read a trial: exact and rounded, in memory and after it was saved.
EXACT, ROUNDED, LEAN, LEAN_ROUNDED = "exact", "rounded", "lean", "lean_rounded"


class Case(NamedTuple):
    """A plan by what it adds to `SMALL`, how many records there are, and what is asked."""

    settings: dict[str, Any]
    n: int = 900
    asked: Mapping[str, Any] = MappingProxyType({})


X: dict[str, Any] = {"covariates": ["x"]}
LEVELS: dict[str, Any] = {"covariates": ["x", {"column": "kind", "levels": ["k0", "k1", "k2"]}]}
UNIT: dict[str, Any] = {"unit": "u"}
# Each record of a unit of its own, by whose name the bootstrap draws; a record without one it draws by chance.
ALONE: dict[str, Any] = {"unit": "u", "records_per_unit": "one"}
WHOLE: dict[str, Any] = {"unit": "u", "moments": {}, "records_per_unit": "together"}
MOMENTS: dict[str, Any] = {"moments": {}}
THREE: dict[str, Any] = {"arms": {"a": 0.4, "b": 0.3, "c": 0.3}}
WEIGHT: dict[str, Any] = {"weight": "w"}
BOOTSTRAP: dict[str, Any] = {"moments": {"bootstrap": 80}}
STRATA: dict[str, Any] = {
    "strata": {"column": "site", "probabilities": {"p": {"a": 0.5, "b": 0.5}, "q": {"a": 0.25, "b": 0.75}}}
}
ALIKE: dict[str, Any] = {
    "strata": {"column": "site", "probabilities": {"p": {"a": 0.5, "b": 0.5}, "q": {"a": 0.5, "b": 0.5}}}
}
SLOPES: dict[str, Any] = {"coefficients": {"center": {"x": 10.0}, "slopes": {"y": {"x": 1.1}}}, **X}
SHARES = [{"kind": "share", "column": "s", "equals": 1.0}, {"kind": "share", "column": "t", "above": 3.0}]
RATIO = [{"kind": "ratio", "numerator": "clicks", "denominator": "views"}]
QUANTILES = [{"kind": "quantile", "column": "ms", "quantiles": [0.5, 0.95], "bounds": [1.0, 1000.0]}]
SURVIVAL = [
    {"kind": "survival", "time": "days", "event": "gone", "until": 60.0, "bins": 60, "better": "higher"},
    {"kind": "survival", "time": "days", "event": "gone", "until": 60.0, "bins": 60, "at": [30.0]},
]
TOTAL = [{"kind": "total", "column": "spent"}]
BOUNDED = [{"column": "y", "bounds": [0.0, 500.0]}, CALIBRATED["outcomes"][1]]
LACKING = [{"column": "y", "missing": "allowed"}, "z"]
CLAIMS: list[Any] = [
    {"column": "y", "better": "higher"},
    {"column": "z", "better": "lower", "margin": 2.0},
    {"column": "v", "better": "higher", "question": "better", "margin": 0.5},
    {"column": "w", "question": "alike", "margin": 3.0},
    {"kind": "share", "column": "s", "equals": 1.0, "better": "lower", "question": "better"},
]

CASES: dict[str, Case] = {
    # Sums of independent records.
    "small": Case({}),
    "tiny": Case({}, 5),
    "few": Case({**UNIT, **X}, 40),
    "two_outcomes": Case({"outcomes": ["y", "z"], "confidence": 0.9}),
    "one_record_per_unit": Case(ALONE),
    "covariate": Case(X),
    "levels": Case(LEVELS),
    "coefficients": Case(SLOPES),
    "calibrated": Case({**CALIBRATED, "outcomes": BOUNDED, "covariates": [{"column": "x", "bounds": [0.0, 1.0]}]}),
    "refused_beyond": Case({**CALIBRATED, "drop_limit": 0.2}),
    "shares": Case({"outcomes": SHARES}),
    "share_below": Case({"outcomes": [{"kind": "share", "column": "t", "below": 3.0}], **X}),
    "capped": Case(
        {"outcomes": [{"kind": "mean", "column": "y", "cap": [0.0, 50.0], "label": "Sales", "measure": "€"}]}
    ),
    "ratio": Case({"outcomes": RATIO}),
    "ratio_adjusted": Case({"outcomes": RATIO, **LEVELS}),
    "quantiles": Case({"outcomes": QUANTILES}),
    "survival": Case({"outcomes": SURVIVAL}),
    "total": Case({"outcomes": TOTAL}),
    "weights": Case(WEIGHT),
    "weights_covariate": Case({**WEIGHT, **X}),
    "missing": Case({"outcomes": LACKING}),
    "missing_covariate": Case({"outcomes": LACKING, **X}),
    "missing_ratio": Case({"outcomes": [{**RATIO[0], "missing": "allowed"}]}),
    "strata": Case(STRATA),
    "strata_alike": Case({**ALIKE, **X}),
    "segments": Case({"segments": ["country"], "outcomes": ["y", SHARES[0]]}),
    "segments_listed": Case({"segments": ["kind"], **LEVELS}),
    "received": Case({**ALONE, "received": "opened", "outcomes": ["y", SHARES[0]]}),
    "three_arms": Case({**THREE, "outcomes": ["y", "z"]}),
    "three_arms_other_control": Case(THREE, asked={"control": "b"}),
    "claims": Case({"outcomes": CLAIMS}),
    "claims_three_arms": Case({**THREE, "outcomes": CLAIMS[:3], "correction": "benjamini-hochberg"}),
    "greater": Case({"outcomes": [{"column": "y", "better": "higher", "question": "better"}], **X}),
    "uncorrected": Case({**THREE, "outcomes": ["y", "z"], "correction": "none"}),
    "dropped": Case({"drop_limit": 0.05, **X}),
    "dropped_too_many": Case({"drop_limit": 0.001}),
    "welch_alone": Case({"expected_units": 400}),
    # Sums by group of units with several records.
    "units": Case({**UNIT, "outcomes": ["y", "z"]}),
    "units_covariates": Case({**UNIT, **LEVELS}),
    "units_coefficients": Case({**UNIT, **SLOPES, "expected_units": 640}),
    "units_shares": Case({**UNIT, "outcomes": SHARES}),
    "units_ratio": Case({**UNIT, "outcomes": RATIO, **LEVELS}),
    "units_quantiles": Case({**UNIT, "outcomes": QUANTILES}),
    "units_survival": Case({**UNIT, "outcomes": SURVIVAL}),
    "units_total": Case({**UNIT, "outcomes": [{**TOTAL[0], "assigned_units": 320}]}),
    "units_weights": Case({**UNIT, **WEIGHT, **X}),
    "units_missing": Case({**UNIT, "outcomes": LACKING, **X}),
    "units_strata": Case({**UNIT, **STRATA}),
    "units_strata_covariate": Case({**UNIT, **STRATA, **X, "outcomes": ["y", TOTAL[0]]}),
    "units_segments": Case({**UNIT, "segments": ["country"], **X}),
    "units_received": Case({**UNIT, "received": "opened"}),
    "units_three_arms": Case({**UNIT, **THREE, **X}),
    "units_claims": Case({**UNIT, "outcomes": CLAIMS[:4]}),
    "clusters": Case({"cluster": "village"}),
    "cut": Case(CUT),
    "demo": Case({**DEMO.settings()}),
    # Moments.
    "moments": Case(MOMENTS),
    "moments_covariates": Case({**MOMENTS, **LEVELS}),
    "moments_tiny": Case({**MOMENTS, **X, "errors": ["classical", "HC1"]}, 9),
    "moments_two_outcomes": Case({**MOMENTS, **X, "outcomes": ["y", SHARES[0]], "errors": ["HC2", "HC1"]}),
    "moments_every_estimator": Case(
        {
            **MOMENTS,
            **X,
            "estimators": ["difference", "regression", "interacted", "ipw", "horvitz_thompson"],
            "errors": ["HC1"],
        }
    ),
    "moments_HC3": Case({**MOMENTS, "estimators": ["difference"], "errors": ["HC0", "HC2", "HC3"]}),
    "moments_classical": Case({**MOMENTS, **X, "errors": ["classical"]}),
    "moments_sample": Case({**MOMENTS, **X, "errors": ["HC1"]}, asked={"population": False}),
    "moments_weights": Case({**MOMENTS, **X, **WEIGHT}),
    "moments_strata": Case({**MOMENTS, **X, **STRATA, "errors": ["classical", "HC1"]}),
    "moments_three_arms": Case({**MOMENTS, **THREE, **X, "errors": ["HC1"]}),
    "moments_other_control": Case({**MOMENTS, **THREE, **X, "errors": ["HC1"]}, asked={"control": "c"}),
    "moments_claims": Case({**MOMENTS, "outcomes": CLAIMS[:4], "errors": ["HC1"]}),
    "moments_dropped": Case({**MOMENTS, "drop_limit": 0.05, "errors": ["HC1"]}),
    "moments_units": Case({**MOMENTS, **UNIT, **X, "errors": ["HC1"]}),
    "whole_units": Case({**WHOLE, **X}),
    "whole_units_weights": Case({**WHOLE, **WEIGHT, "errors": ["CR0", "CR1"]}),
    "whole_units_few": Case({**WHOLE, **X, "errors": ["CR1"]}, 40),
    "bootstrap": Case({**BOOTSTRAP, **ALONE, **X, "errors": ["classical"]}),
    "bootstrap_units": Case({**BOOTSTRAP, **UNIT, "errors": ["HC1"], "estimators": ["difference", "ipw"]}),
    "bootstrap_halved": Case(
        {
            **MOMENTS,
            **ALONE,
            **X,
            "bootstrap": {"replicates": 80, "weights": "double-or-nothing"},
            "errors": ["classical"],
            "estimators": ["interacted"],
        }
    ),
    "bootstrap_clusters": Case(
        {**BOOTSTRAP, "cluster": "village", "errors": ["classical"], "estimators": ["difference"]}
    ),
    "full": Case(FULL),
    # Records that stay on devices.
    "devices_one_message": Case({**X, "federated": "one-message"}, 300),
    "devices_one_message_weights": Case({**WEIGHT, "federated": "one-message"}, 300),
    "devices_delta": Case({"federated": "delta", "outcomes": ["y", "z"]}, 300),
    "devices_scores": Case({**X, "federated": "scores"}, 300),
    "devices_sums": Case({"federated": "sums", "expected_units": 640, "outcomes": ["y", "z"]}, 300),
    "devices_sums_adjusted": Case({**SLOPES, "federated": "sums", "expected_units": 640}, 300),
}


def plan_of(name: str) -> fa.Plan:
    """The plan of a case."""
    return fa.Plan(**in_parts({**SMALL, **CASES[name].settings}))


def readings(name: str) -> dict[str, Any]:
    """The effects of a case as `to_json` writes them, by the way in which they were read.

    A trial of devices has no memory of its own, and so is read in two ways; all others in four.
    """
    plan, asked = plan_of(name), CASES[name].asked
    rows = rows_for(plan, CASES[name].n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fa.LossWarning)
        warnings.simplefilter("ignore", fa.SampleRatioWarning)
        if plan.federated is not None:
            return {way: _decoded(_of_devices(plan, rows, way == ROUNDED)) for way in (EXACT, ROUNDED)}
        rich = _folded(plan, rows)
        lean = fa.Trial.loads(rich.copy().dumps(), key=KEY)
        trials = {EXACT: rich, ROUNDED: rich, LEAN: lean, LEAN_ROUNDED: lean}
        return {
            way: _decoded(trial.read(TOLD if way in (ROUNDED, LEAN_ROUNDED) else OWN, **asked))
            for way, trial in trials.items()
        }


def _folded(plan: fa.Plan, rows: pd.DataFrame) -> fa.Trial:
    trial = fa.Trial(plan, key=KEY)
    for start, stop in pairwise([0, *([] if plan.whole_units else [len(rows) // 3]), len(rows)]):
        trial.fold(rows[start:stop])
    return trial


def _of_devices(plan: fa.Plan, rows: pd.DataFrame, rounded: bool) -> fa.Effects:
    """What the coordinator reads once every device has sent what its mode says."""
    devices = devices_of(plan, rows)
    if plan.mode == "scores":
        share = share_of(plan, [moments(kept) for kept in devices])
        published = Published.of(share.trial)
        with_replies(share, published, [answer(plan, published, kept) for kept in devices])
    else:
        share, published = share_of(plan, [report(plan, kept, i % plan.groups) for i, kept in enumerate(devices)]), None
    return mode_of(plan).results(share, everyone(plan, devices), published, TOLD if rounded else OWN)[0]


def _decoded(effects: fa.Effects) -> Any:
    """Everything that `to_json` writes, but what it writes as null, and a residual that is nothing but rounding."""
    return _without_nulls(
        msgspec.json.decode(re.sub(r"residual \S+ roundings", "residual … roundings", effects.to_json()))
    )


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value
