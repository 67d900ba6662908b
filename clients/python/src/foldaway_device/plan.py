"""A plan, read from the bytes that a server gives out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from foldaway_device.errors import PlanError
from foldaway_device.values import Bounds, Value, values_of


class Coefficients(NamedTuple):
    """What the plan predicts values by: centers by column of a covariate, slopes by value and column."""

    center: Mapping[str, float]
    slopes: Mapping[str, Mapping[str, float]]


class Plan(NamedTuple):
    """The settings that a device reads; `docs/protocol.md` of foldaway describes them.

    Attributes:
        text: The plan as it was served; nobody writes it again.
        refused: The columns of which values beyond their bounds are faulty; those of others are clipped.
        fingerprint: The SHA-256 of these bytes.
        servers: In mode shares, the public keys of the leader and the helper, in base64.
        regressors: The names of a row's regressors: the intercept, and the columns of the covariates.
    """

    text: str
    fingerprint: str
    name: str
    arm: str
    arms: Mapping[str, float]
    arm_values: Mapping[str, list[str]]
    values: Sequence[Value]
    covariates: Sequence[str]
    levels: Mapping[str, Sequence[str]]
    bounds: Mapping[str, Bounds]
    refused: frozenset[str]
    weight: str | None
    groups: int
    coefficients: Coefficients | None
    release: bool
    retention: float
    mode: str
    device_records: int
    invited: bool
    expected_units: float | None
    servers: Mapping[str, str]
    regressors: Sequence[str]


def read_plan(data: bytes) -> Plan:
    """The plan in these bytes.

    Raises:
        PlanError: It is none, or not one for devices.
    """
    try:
        text = data.decode()
        plan = json.loads(text)
        if "federated" in plan:
            return _read(plan, text, sha256(data).hexdigest())
        plan["name"]
    except (ValueError, LookupError, TypeError, AttributeError, StopIteration):
        raise PlanError(
            "this is not a trial's plan: use the bytes that the trial's address with /plan at its end answers with."
        ) from None
    raise PlanError("this plan is not for devices: it has no [federated] table.")


def _read(plan: dict[str, Any], text: str, fingerprint: str) -> Plan:
    federated = plan["federated"]
    covariates = [each if isinstance(each, dict) else {"column": each} for each in plan.get("covariates", [])]
    levels = {each["column"]: each["levels"] for each in covariates if "levels" in each}
    names = [each["column"] for each in covariates]
    limits = [limit for each in [*plan["outcomes"], *covariates] for limit in _limits_of(each)]
    values = {value.name: value for outcome in plan["outcomes"] for value in values_of(outcome)}
    coefficients = plan.get("coefficients")
    return Plan(
        text=text,
        fingerprint=fingerprint,
        name=plan["name"],
        arm=plan["arm"],
        arms=_shares(plan),
        arm_values={arm: _values(arm, written) for arm, written in plan["arms"].items()},
        values=list(values.values()),
        covariates=names,
        levels=levels,
        bounds={column: bounds for column, bounds, _ in limits},
        refused=frozenset(column for column, _, beyond in limits if beyond == "refuse"),
        weight=plan.get("weight"),
        groups=_groups_of(plan),
        coefficients=coefficients and Coefficients(coefficients.get("center", {}), coefficients.get("slopes", {})),
        release=plan.get("release") is not None,
        retention=plan.get("privacy", {}).get("retention", 2_592_000.0),
        mode=federated["mode"],
        device_records=federated.get("device_records", 1_000),
        invited=federated.get("invited", False),
        expected_units=plan.get("expected_units"),
        servers=dict(zip(("leader", "helper"), (each["key"] for each in federated.get("servers", [])), strict=False)),
        regressors=["1", *(column for name in names for column in columns_of(name, levels.get(name)))],
    )


def _limits_of(written: Any) -> list[tuple[str, Bounds, str]]:
    """Bounds that an outcome or a covariate gives columns, and what happens to values beyond them."""
    if not isinstance(written, dict) or "bounds" not in written:
        return []
    bounds, beyond = written["bounds"], written.get("beyond", "clip")
    of = bounds if isinstance(bounds, dict) else {written["column"]: bounds}
    return [(column, (lower, upper), beyond) for column, (lower, upper) in of.items()]


def _shares(plan: dict[str, Any]) -> dict[str, float]:
    """Each arm's probability: a number, or the `share` of a table."""
    return {arm: each["share"] if isinstance(each, dict) else each for arm, each in plan["arms"].items()}


def _values(arm: str, written: Any) -> list[str]:
    """What the column says for an arm."""
    if not isinstance(written, dict):
        return [arm]
    return [written["values"]] if isinstance(written["values"], str) else list(written["values"])


def _groups_of(plan: dict[str, Any]) -> int:
    """Into how many groups devices are dealt: as many as leave `smallest_cell` in each, if the plan expects some."""
    least = plan.get("privacy", {}).get("smallest_cell", 10)
    fewest, groups = 16, 4_096
    while fewest <= least and fewest < groups:
        fewest *= 2
    if "expected_units" not in plan:
        return max(128, fewest)
    units = plan["expected_units"] * min(_shares(plan).values())
    while groups > fewest and units < least * groups:
        groups //= 2
    return groups


def columns_of(covariate: str, levels: Sequence[str] | None) -> list[str]:
    """The columns that a covariate makes: itself, or one for each of its levels but the first."""
    return [covariate] if levels is None else [f"{covariate}[{level}]" for level in levels[1:]]
