"""What every client of the protocol must do, worked out by the server's code: `make vectors` writes it to a file.

Each case is a plan as a server gives it out, with devices' records, the rows that these make, and the messages and the
reply that follow. `docs/protocol.md` says how clients go through the file.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import foldaway as fa
from clustered import reply
from foldaway.federated.messages import (
    DeviceMessage,
    DeviceMoments,
    DeviceSums,
    Enrolment,
    GroupSums,
    ScoreReply,
    SplitSums,
    packed,
)
from foldaway.federated.modes import mode_of
from foldaway.federated.modes.share import ServerShare
from foldaway.federated.replies.published import Published
from foldaway.federated.summands.sealing import info_of
from foldaway.federated.summands.words import Words, fixed, split
from foldaway.federated.summands.words import packed as packed_words
from foldaway.plan.arms import device_group, public_arm
from foldaway.records import check
from foldaway.records.faults import FaultyBatch
from foldaway.tallies.predictor import predictor_of
from hpke import private_key, public_bytes, sealed
from plans import in_parts

FILE = Path(__file__).parents[1] / "clients/protocol/vectors.json"

DEVICES, DRAWS = 3, 8

_COMMON: dict[str, Any] = {"arm": "variant", "arms": {"control": 0.5, "treatment": 0.5}, "outcomes": ["revenue"]}
_LEVELS: dict[str, Any] = {"covariates": ["before", {"column": "country", "levels": ["de", "fr", "it"]}]}
_COEFFICIENTS = {"before": 0.5, "country[fr]": -1.25, "country[it]": 2.0}

# Any numbers make a private key.
_PRIVATE = {role: hashlib.sha256(role.encode()).digest() for role in ("leader", "helper")}
_SERVERS = {
    "mode": "shares",
    "servers": [
        {"url": f"https://{role}.example", "key": b64encode(public_bytes(private_key(scalar))).decode()}
        for role, scalar in _PRIVATE.items()
    ],
}

PLANS: dict[str, dict[str, Any]] = {
    "one outcome": {**_COMMON, "federated": "one-message"},
    "covariates, one of them with levels": {**_COMMON, **_LEVELS, "federated": "one-message"},
    "three arms, weights, names beyond ASCII": {
        **_COMMON,
        "arm": "größe",
        "arms": {"klein": 0.2, "mittel": 0.3, "groß 🙂": 0.5},
        "outcomes": ["erlös"],
        "weight": "gewicht",
        "federated": "one-message",
    },
    "two outcomes in mode delta": {**_COMMON, "outcomes": ["revenue", "clicks"], "federated": "delta"},
    "every kind of value in mode sums": {
        **_COMMON,
        "outcomes": [
            "revenue",
            {"kind": "mean", "column": "revenue", "cap": [0, 0.1]},
            {"kind": "share", "column": "revenue", "above": 1e-7},
            {"kind": "share", "column": "clicks", "below": 2},
            {"kind": "share", "column": "clicks", "equals": 3},
            {"kind": "ratio", "numerator": "clicks", "denominator": "views"},
            {"kind": "total", "column": "revenue"},
        ],
        "expected_units": 81_920,
        "federated": {"mode": "sums", "device_records": 20},
    },
    "arms whose names are digits, and numbers with many digits": {
        **_COMMON,
        "arms": {"10": 0.2, "2": 0.3, "1": 0.5},
        "outcomes": [
            {"kind": "share", "column": "revenue", "above": 0.1 + 0.2},
            {"kind": "share", "column": "revenue", "below": 1e21},
            {"kind": "mean", "column": "revenue", "cap": [-0.1, 2.5e-5]},
        ],
        "federated": "delta",
    },
    "bounds that clip": {
        **_COMMON,
        "outcomes": [
            {"column": "revenue", "bounds": [-1, 5]},
            {"kind": "ratio", "numerator": "clicks", "denominator": "views", "bounds": {"clicks": [1, 4]}},
        ],
        "federated": "sums",
        "expected_units": 320,
    },
    "bounds that refuse": {
        **_COMMON,
        "outcomes": [
            {"column": "revenue", "bounds": [-1, 5], "beyond": "refuse"},
        ],
        "federated": "delta",
        "retention": 86_400,
    },
    "coefficients": {
        **_COMMON,
        **_LEVELS,
        "outcomes": ["revenue", {"kind": "share", "column": "revenue", "above": 1000.5}],
        "coefficients": {
            "center": {"before": 3.0, "country[fr]": 0.25, "country[it]": 0.125},
            "slopes": {"revenue": _COEFFICIENTS, "revenue > 1000.5": dict.fromkeys(_COEFFICIENTS, 0.125)},
        },
        "federated": "sums",
    },
    "a release, whose predictions are clipped": {
        **_COMMON,
        **_LEVELS,
        "outcomes": [{"column": "revenue", "bounds": [0, 4]}],
        "covariates": [{"column": "before", "bounds": [0, 10]}, _LEVELS["covariates"][1]],
        "coefficients": {
            "center": {"before": 3.0, "country[fr]": 0.25, "country[it]": 0.125},
            "slopes": {"revenue": _COEFFICIENTS},
        },
        "release": 1.0,
        "expected_units": 320,
        "federated": {"mode": "sums", "device_records": 5},
    },
    "shares": {
        **_COMMON,
        "outcomes": [{"column": "revenue", "bounds": [-1, 5]}, {"kind": "share", "column": "clicks", "above": 2.5}],
        "covariates": [{"column": "before", "bounds": [0, 10]}, _LEVELS["covariates"][1]],
        "arms": {"klein": 0.2, "mittel": 0.3, "groß 🙂": 0.5},
        "coefficients": {
            "center": {"before": 3.0, "country[fr]": 0.25, "country[it]": 0.125},
            "slopes": {"revenue": _COEFFICIENTS, "clicks > 2.5": dict.fromkeys(_COEFFICIENTS, 0.125)},
        },
        "expected_units": 100_000,
        "federated": _SERVERS | {"device_records": 50},
    },
    "shares of a release": {
        **_COMMON,
        "outcomes": [{"column": "revenue", "bounds": [0, 4]}],
        "covariates": [{"column": "before", "bounds": [0, 10]}],
        "coefficients": {"center": {"before": 3.0}, "slopes": {"revenue": {"before": 0.5}}},
        "release": 1.0,
        "expected_units": 320,
        "federated": _SERVERS | {"device_records": 5},
    },
    "scores": {**_COMMON, **_LEVELS, "federated": "scores"},
    "scores with weights": {
        **_COMMON,
        "covariates": ["before"],
        "weight": "w",
        "outcomes": ["revenue", "clicks"],
        "federated": "scores",
    },
    "scores by inverse probabilities": {
        **_COMMON,
        "covariates": ["before"],
        "moments": {"estimators": ["horvitz_thompson", "difference"]},
        "federated": "scores",
    },
}

# What is wrong with a record, whatever the plan; the good value of each column stands beside.
FAULTS: tuple[Any, ...] = (None, "12.5", "", [1], {"of": 1}, 1e41, -1e41)


def vectors() -> dict[str, Any]:
    """The whole file."""
    about = "Made by foldaway's server (make vectors); docs/protocol.md says how a client goes through it."
    return {"about": about, "cases": [case(name, settings) for name, settings in PLANS.items()]}


def case(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """One plan, and what devices of it do."""
    plan = fa.Plan(**in_parts({"name": "vectors", "cohort": 1, "smallest_cell": 1, **settings}))
    assert plan.federated is not None
    rng = np.random.default_rng(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]))
    devices = [_device(plan, rng, i) for i in range(DEVICES)]
    if plan.mode == "scores":
        _reply(plan, devices)
    private = {role: b64encode(scalar).decode() for role, scalar in _PRIVATE.items()}
    return {
        "case": name,
        "plan": plan.canonical().decode(),
        "fingerprint": plan.fingerprint,
        "reads": {
            "mode": plan.mode,
            "device_records": plan.unit_records,
            "retention": plan.privacy.retention,
            "columns": list(plan.columns),
        },
        **({"private_keys": private} if plan.mode == "shares" else {}),
        "draws": [_drawn(plan, rng.bytes(16)) for _ in range(DRAWS)],
        "faulty": list(_faulty(plan, rng)),
        "devices": devices,
    }


def _drawn(plan: fa.Plan, identity: bytes) -> dict[str, Any]:
    drawn: dict[str, Any] = {
        "identity": b64encode(identity).decode(),
        "arm": public_arm(plan.arms, plan.fingerprint, identity),
    }
    return {**drawn, "group": device_group(plan.groups, plan.fingerprint, identity)} if plan.keeps == "sums" else drawn


def _record(plan: fa.Plan, rng: np.random.Generator) -> dict[str, Any]:
    """A record of the columns that a device is asked for, without the arm."""
    numbers = dict.fromkeys([*plan.measured, *(name for name in plan.covariates if name not in plan.levels)])
    record: dict[str, Any] = {name: round(float(rng.normal(2, 3)), 3) for name in numbers}
    record |= {
        name: round(float(rng.uniform(*ends)), 3) for name, (ends, beyond) in plan.limits.items() if beyond != "clip"
    }
    record |= {name: int(rng.integers(0, 6)) for name in ("clicks", "views") if name in record}
    record |= {name: str(rng.choice(plan.levels[name])) for name in plan.covariates if name in plan.levels}
    return record if plan.weight is None else {**record, plan.weight: round(float(rng.uniform(0.5, 2)), 3)}


def _checked(plan: fa.Plan, record: Mapping[str, Any]) -> tuple[Any, float]:
    batch, _ = check([{**record, plan.arm: next(iter(plan.arms))}], plan)
    return batch.assemble(slice(0, 1))[:, 0], 1.0 if batch.weight is None else float(batch.weight[0])


def _faulty(plan: fa.Plan, rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    """Records with a fault in a column each, and the rule that it breaks."""
    good = _record(plan, rng)
    wrong: list[tuple[str, Any]] = [(column, value) for column in good for value in FAULTS]
    wrong += [(column, level) for column in plan.levels for level in ("FR", 7, True)]
    wrong += [(column, 99.0) for column, limits in plan.limits.items() if limits.beyond == "refuse"]
    wrong += [] if plan.weight is None else [(plan.weight, value) for value in (0, -1, 1e-41)]
    for column, value in wrong:
        record = {**good, column: value}
        try:
            _checked(plan, record)
        except FaultyBatch as refused:
            (rules,) = refused.faults.by_column().values()
            yield {"record": record, "column": column, "rule": next(iter(rules))}


def _device(plan: fa.Plan, rng: np.random.Generator, place: int) -> dict[str, Any]:
    """A device's records, and what it sends before anything is published."""
    identity, number = rng.bytes(16), rng.bytes(16)
    arm = public_arm(plan.arms, plan.fingerprint, identity)
    records = [_record(plan, rng) for _ in range(2 * place + 1)]
    made = [_checked(plan, record) for record in records]
    rows, weights = np.array([row for row, _ in made]), np.array([weight for _, weight in made])
    device: dict[str, Any] = {
        "identity": b64encode(identity).decode(),
        "number": b64encode(number).decode(),
        "records": records,
        "rows": [b64encode(packed(row)).decode() for row in rows],
        "weights": b64encode(packed(weights)).decode(),
        "enrolment": Enrolment(number, arm),
    }
    n, k = len(rows), len(plan.regressors)
    R: Any = np.linalg.qr(np.vstack([rows * np.sqrt(weights)[:, None], np.zeros((len(plan.columns),) * 2)]), mode="r")
    match plan.mode:
        case "one-message":
            device["report"] = DeviceMoments.of(number, arm, n, R)
        case "scores":
            device["moments"] = DeviceMoments.of(rng.bytes(16), arm, n, R)
        case "delta":
            device["report"] = DeviceSums(number, arm, n, packed(rows[:, k:].sum(axis=0)))
        case "sums" | "shares":
            predictor = predictor_of(plan)
            x, y = rows[:, 1:k].T, rows[:, k:].T
            values = y if predictor is None else np.vstack([y, predictor.adjusted(x, y)])
            group, sums = device_group(plan.groups, plan.fingerprint, identity), values.sum(axis=1)
            device["report"] = GroupSums(number, arm, n, group, packed(sums))
            if plan.mode == "shares":
                device |= _split(plan, number, arm, group, fixed(plan, n, sums), rng)
    return _built(plan, device)


def _split(
    plan: fa.Plan, number: bytes, arm: str, group: int, words: Words, rng: np.random.Generator
) -> dict[str, Any]:
    """The numbers as words, a seed, what it makes of them, and that sealed for both servers."""
    assert plan.federated is not None
    seed = rng.bytes(32)
    halves, infos = {"leader": split(words, seed), "helper": seed}, {}
    ciphertexts = {}
    for role, server in zip(("leader", "helper"), plan.federated.pair, strict=True):
        infos[role] = info_of(plan.fingerprint, role, number, arm, group)  # type: ignore[arg-type]
        ciphertexts[role] = sealed(halves[role], b64decode(server.key), infos[role], rng.bytes(32))
    return {
        "words": b64encode(packed_words(words)).decode(),
        "seed": b64encode(seed).decode(),
        "leaders_half": b64encode(halves["leader"]).decode(),
        "info": {role: b64encode(info).decode() for role, info in infos.items()},
        "report": SplitSums(number, arm, group, **ciphertexts),
    }


def _built(plan: fa.Plan, device: dict[str, Any]) -> dict[str, Any]:
    """Messages as JSON; the server takes each."""
    for kind in ("moments", "report"):
        if kind in device:
            mode_of(plan).check(ServerShare.of(plan), device[kind], None)
    return {
        name: msgspec.to_builtins(value) if isinstance(value, DeviceMessage) else value
        for name, value in device.items()
    }


def _reply(plan: fa.Plan, devices: Sequence[dict[str, Any]]) -> None:
    """What a server publishes of many devices' moments, and the reply of those here."""
    share, mode = ServerShare.of(plan), mode_of(plan)
    rng = np.random.default_rng(8)
    for place in range(40):
        arm = list(plan.arms)[place % len(plan.arms)]
        rows = np.array([_checked(plan, _record(plan, rng))[0] for _ in range(5)])
        factor: Any = np.linalg.qr(np.vstack([rows, np.zeros((rows.shape[1],) * 2)]), mode="r")
        message = DeviceMoments.of(rng.bytes(16), arm, 5, factor)
        mode.fold(share, [message], [factor], None)
    published = Published.of(share.trial)
    coefficients = published.message("replying", 1_700_000_000.0)
    for device in devices:
        message = msgspec.convert(device["moments"], DeviceMoments)
        R = message.triangle(len(plan.columns))
        # What the rows come to is in their factor, of which the scores are a function: X'E of R's rows.
        scores = reply(plan, coefficients, message.arm, R)
        number = msgspec.convert(device["number"], bytes)
        device["coefficients"] = msgspec.to_builtins(coefficients)
        device["report"] = msgspec.to_builtins(ScoreReply(number, message.arm, packed(scores)))


def written() -> str:
    """The file's text."""
    return json.dumps(vectors(), indent=1, ensure_ascii=False, default=_base64) + "\n"


def _base64(value: object) -> str:
    assert isinstance(value, bytes)
    return b64encode(value).decode()


if __name__ == "__main__":
    FILE.write_text(written(), encoding="utf-8")
