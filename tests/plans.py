"""Plans for the tests: a small one, one that uses every setting, and a strategy that draws them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st

import foldaway as fa
from foldaway.plan.part import settings_of

SMALL: dict[str, Any] = {"name": "small", "arm": "group", "arms": {"a": 0.5, "b": 0.5}, "outcomes": ["y"]}

FULL: dict[str, Any] = {
    "name": "full",
    "arm": "variant",
    "arms": {"control": 0.2, "gold": 0.3, "silver": 0.5},
    "outcomes": ["revenue", "converted"],
    "covariates": [
        {"column": "plan", "levels": ["free", "paid"]},
        "age",
        {"column": "country", "levels": ["de", "fr", "us"]},
    ],
    "baseline": ["age", "country"],
    "unit": "user_id",
    "weight": "w",
    "confidence": 0.9,
    "correction": "benjamini-hochberg",
    "records_per_unit": "one",
    "expected_units": 6400,
    "hash": "sha256",
    "drop_limit": 0.1,
    "moments": {
        "estimators": ["difference", "regression"],
        "errors": ["classical", "HC1"],
        "bootstrap": {"replicates": 200, "weights": "double-or-nothing"},
    },
    "privacy": {"cohort": 50, "smallest_cell": 20},
}

# Those that FULL cannot have, for it has a bootstrap: records that stay on devices.
FEDERATED: dict[str, Any] = {
    **SMALL,
    "name": "federated",
    "covariates": ["x"],
    "privacy": {"retention": 3600.5},
    "federated": {
        "mode": "scores",
        "reply_deadline": 60.5,
        "reply_share": 0.9,
        "device_records": 50,
    },
}

# Those of two servers.
SHARED: dict[str, Any] = {
    **SMALL,
    "outcomes": [{"column": "y", "bounds": [0.0, 10.0]}],
    "expected_units": 1000,
    "federated": {
        "mode": "shares",
        "servers": [{"url": f"https://{each}.example", "key": "B" + 86 * each + "="} for each in "xy"],
    },
}

# Those that no plan can have that keeps moments.
CALIBRATED: dict[str, Any] = {
    **SMALL,
    "outcomes": [
        {"column": "y", "bounds": [0.0, 500.0], "beyond": "refuse"},
        {"kind": "total", "column": "z", "assigned_units": 500},
    ],
    "covariates": [{"column": "x", "bounds": [0.0, 1.0], "beyond": "refuse"}],
    "coefficients": {"center": {"x": 0.5}, "slopes": {"y": {"x": 2.5}, "z": {"x": 0.5}}},
}

# Those whose effects are told once, with noise.
RELEASED: dict[str, Any] = {
    **SMALL,
    "unit": "u",
    "records_per_unit": "together",
    "outcomes": [{"column": "y", "bounds": [0.0, 10.0]}],
    "release": {"epsilon": 1.0, "delta": 1e-5, "unit_records": 5, "noisy_groups": 32},
}

# Those that look at parts of the records.
CUT: dict[str, Any] = {
    **SMALL,
    "arms": {"a": 0.5, "b": {"share": 0.5, "values": "1"}},
    "cluster": "village",
    "segments": ["country"],
    "received": "opened",
    "strata": {"column": "site", "probabilities": {"x": {"a": 0.5, "b": 0.5}, "y": {"a": 0.25, "b": 0.75}}},
}

# Those of a plan that is looked at when it says.
LOOKED: dict[str, Any] = {
    **SMALL,
    "outcomes": [{"column": "y", "better": "higher"}],
    "looks": {"information": {"units": 900}, "at": [0.5, 1.0], "futility": "obrien-fleming"},
}

PARTS = {name: setting.part for name, setting in settings_of(fa.Plan).items() if setting.part is not None}
WITHIN = [setting.part for part in PARTS.values() for setting in settings_of(part).values() if setting.part is not None]
"""The parts within parts."""
LISTED = [setting.each for setting in settings_of(fa.Plan).values() if setting.each is not None]
"""The parts of which a plan has lists."""


def in_parts(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that tests name without their part, each in the part that it belongs to."""
    inside = dict(settings)
    for table, part in PARTS.items():
        own = {name: inside.pop(name) for name in settings_of(part) if name in inside}
        if any(value is not None for value in own.values()):
            written = inside.get(table)
            inside[table] = own if written is None else msgspec.structs.asdict(part.of(written)) | own
    return inside


def replaced(plan: fa.Plan, **settings: Any) -> fa.Plan:
    """The plan with some settings changed, which may be those of its parts."""
    return fa.Plan(**in_parts(msgspec.structs.asdict(plan) | settings))


def listing(columns: Sequence[str], levels: Mapping[str, Sequence[str]]) -> list[Any]:
    """Covariates or segments, with the levels of those that have some."""
    return [{"column": name, "levels": list(levels[name])} if name in levels else name for name in columns]


# Names that people give to columns, arms and levels: anything printable, quotes and emoji too.
names = st.text(
    st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")),
    min_size=1,
    max_size=12,
)


@st.composite
def plans(draw: st.DrawFn) -> fa.Plan:
    """Any plan that can be run."""
    columns = draw(st.lists(names, min_size=8, max_size=8, unique=True))
    arms = draw(st.lists(names, min_size=2, max_size=5, unique=True))
    parts = [draw(st.integers(1, 100)) for _ in arms]
    covariates = columns[4 : draw(st.integers(4, 8))]
    levels = {
        name: draw(st.lists(names, min_size=2, max_size=4, unique=True)) for name in covariates if draw(st.booleans())
    }
    unit = draw(st.sampled_from([None, columns[2]]))
    moments: dict[str, Any] | None = draw(st.sampled_from([None, {}]))
    settings: dict[str, Any] = {
        "unit": unit,
        "weight": draw(st.sampled_from([None, columns[3]])),
    }
    if moments is not None:
        estimators = ["ipw", "difference"] + (["regression", "interacted"] if covariates else [])
        moments["estimators"] = draw(st.lists(st.sampled_from(estimators), unique=True))
        settings["records_per_unit"] = draw(st.sampled_from(["many", "together"])) if unit else "many"
        if draw(st.booleans()):
            settings = draw(_federated(columns[2], columns[3]))
        else:
            moments["bootstrap"] = draw(st.none() | st.integers(2, 1000))
            moments["errors"] = draw(st.lists(st.sampled_from(["classical", "HC0", "HC1"]), unique=True))
    else:
        settings["records_per_unit"] = draw(st.sampled_from(["many", "one"])) if unit else "many"
    return fa.Plan(
        name=draw(st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,20}\Z")),
        arm=columns[0],
        arms={arm: part / sum(parts) for arm, part in zip(arms, parts, strict=True)},
        outcomes=[columns[1]],
        covariates=listing(covariates, levels),
        confidence=draw(st.floats(0.5, 0.999)),
        drop_limit=draw(st.sampled_from([0, 0.05])),
        moments=moments,
        expected_units=draw(st.none() | st.integers(1, 10**9)),
        privacy=fa.Privacy(
            cohort=draw(st.integers(1, 10**9)),
            smallest_cell=draw(st.integers(1, 10**9)),
            **({"retention": draw(st.floats(60, 1e9))} if "federated" in settings else {}),
        ),
        **settings,
    )


@st.composite
def _federated(draw: st.DrawFn, unit: str, weight: str) -> dict[str, Any]:
    """The settings of records that stay on devices or, with a unit, at sites."""
    mode: Any = draw(st.sampled_from(["one-message", "scores"]))
    sites = mode == "one-message" and draw(st.booleans())
    return {
        "federated": fa.Federated(
            mode,
            reply_deadline=draw(st.floats(1, 1e7)),
            reply_share=draw(st.floats(0.01, 1)),
        ),
        "unit": unit if sites else None,
        "records_per_unit": "together" if sites else "many",
        "weight": draw(st.sampled_from([None, weight])),
    }
