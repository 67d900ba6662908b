"""Records split by unit into the messages of devices, without foldaway's own device: rows kept, QR by NumPy."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pandas as pd

import foldaway as fa
from foldaway.effects.door import OWN
from foldaway.federated.messages import (
    DeviceMessage,
    DeviceMoments,
    DeviceSums,
    GroupSums,
    PublishedCoefficients,
    ScoreReply,
    packed,
    unpacked,
)
from foldaway.federated.modes import mode_of
from foldaway.federated.modes.share import Devices, ServerShare
from foldaway.federated.replies.integrity import Integrity
from foldaway.federated.replies.models import readings, segments
from foldaway.federated.replies.published import Published
from foldaway.numerics.linalg import frame_rows
from kept_rows import covariate_columns
from plans import in_parts


class Kept(NamedTuple):
    """A device's own records."""

    arm: str
    rows: Any  # n by K
    weights: Any


def federated(plan: fa.Plan, mode: str, **others: Any) -> fa.Plan:
    """The same plan for records that stay on devices."""
    of_devices: dict[str, Any] = {"unit": None, "records_per_unit": "many", "moments": None, "federated": mode}
    if mode == "sums" and plan.covariates:
        of_devices["coefficients"] = some_coefficients(plan)
    return fa.Plan(**in_parts(msgspec.structs.asdict(plan) | of_devices | others))


def some_coefficients(plan: fa.Plan) -> fa.Coefficients:
    """Any numbers, different for every column and outcome."""
    columns = dict(enumerate(plan.regressors[1:]))
    return fa.Coefficients(
        center={name: 0.5 + i for i, name in columns.items()},
        slopes={
            outcome: {name: 0.7 + o - 0.4 * i for i, name in columns.items()} for o, outcome in enumerate(plan.measured)
        },
    )


def devices_of(plan: fa.Plan, frame: pd.DataFrame, unit: str = "unit") -> list[Kept]:
    """The records of each unit."""
    y = frame[list(plan.measured)].to_numpy(float)
    z = np.column_stack([np.ones(len(frame)), covariate_columns(plan, frame), y])
    weights = frame[plan.weight].to_numpy(float) if plan.weight else None
    arms = frame[plan.arm].to_numpy()
    return [
        Kept(arms[index[0]], z[index], None if weights is None else weights[index])
        for index in frame.groupby(unit, sort=False).indices.values()
    ]


def triangle(rows: Any, weights: Any = None) -> Any:
    """The triangular factor, K by K."""
    K = rows.shape[1]
    weighted = rows if weights is None else rows * np.sqrt(weights)[:, None]
    return np.linalg.qr(np.vstack([weighted, np.zeros((K, K))]), mode="r")


def moments(kept: Kept) -> DeviceMoments:
    """A device's factor."""
    return DeviceMoments.of(secrets.token_bytes(16), kept.arm, len(kept.rows), triangle(kept.rows, kept.weights))


def report(plan: fa.Plan, kept: Kept, group: int | None = None) -> DeviceMoments | DeviceSums | GroupSums:
    """A device's report in the modes of one round; in mode sums in this group, or a random one."""
    if plan.mode == "sums":
        group = secrets.randbelow(plan.groups) if group is None else group
        values = np.column_stack([kept.rows[:, len(plan.regressors) :], adjusted(plan, kept.rows)])
        return GroupSums(secrets.token_bytes(16), kept.arm, len(kept.rows), group, packed(values.sum(axis=0)))
    if plan.mode == "delta":
        return DeviceSums(secrets.token_bytes(16), kept.arm, len(kept.rows), packed(kept.rows[:, 1:].sum(axis=0)))
    return moments(kept)


def adjusted(plan: fa.Plan, rows: Any) -> Any:
    """ỹ of each outcome, n by outcomes; none without coefficients."""
    if plan.coefficients is None:
        return np.empty((len(rows), 0))
    names, k = plan.regressors[1:], len(plan.regressors)
    away = rows[:, 1:k] - [plan.coefficients.center[name] for name in names]
    slopes = [[plan.coefficients.slopes[outcome][name] for name in names] for outcome in plan.measured]
    return rows[:, k:] - away @ np.transpose(slopes)


def reply(plan: fa.Plan, published: PublishedCoefficients, arm: str, rows: Any, weights: Any = None) -> Any:
    """The scores for every published model of rows z = [1, x, y], n by K: X'E of all of them."""
    K = len(plan.columns)
    F = np.zeros((K, K), order="F")
    F[np.triu_indices(K)] = unpacked(published.frame, K * (K + 1) // 2)
    framed = frame_rows(F, np.asfortranarray(rows, dtype=np.float64))
    if weights is not None:
        framed *= np.sqrt(weights)[:, None]
    parts = [np.empty(0)]
    for segment in segments(published.models):
        X, E = readings(segment, list(plan.arms).index(arm), F, framed, len(plan.regressors))
        parts.append((X.T @ E).ravel())
    return np.concatenate(parts)


def answer(plan: fa.Plan, published: Published, kept: Kept) -> ScoreReply:
    """A device's reply in mode scores."""
    values = reply(plan, published.message("replying", 0.0), kept.arm, kept.rows, kept.weights)
    return ScoreReply(secrets.token_bytes(16), kept.arm, packed(values))


def batches(items: list[Any], size: int) -> Iterator[list[Any]]:
    """So many at a time."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def share_of(plan: fa.Plan, messages: list[Any], size: int = 64) -> ServerShare:
    """The share of a server that has got these messages, so many at a time."""
    share, mode = ServerShare.of(plan), mode_of(plan)
    for some in batches(messages, size):
        mode.fold(share, some, [mode.check(share, message, None) for message in some], None)
    return share


def with_replies(share: ServerShare, published: Published, messages: list[ScoreReply], size: int = 64) -> ServerShare:
    """The share with these replies."""
    for some in batches(messages, size):
        mode = mode_of(share.plan)
        mode.fold(share, some, [mode.check(share, message, published) for message in some], published)
    return share


def everyone(plan: fa.Plan, devices: list[Kept], reported: list[Any] | None = None) -> Devices:
    """All of them enrolled, and those reported that are given, or all."""
    present: list[Kept] | list[DeviceMessage] = devices if reported is None else reported

    def count(of: Any) -> dict[str, int]:
        return {arm: sum(each.arm == arm for each in of) for arm in plan.arms}

    return Devices(count(devices), count(present))


def results(
    plan: fa.Plan, share: ServerShare, devices: Devices, published: Published | None = None
) -> tuple[fa.Effects, Integrity | None]:
    """The effects of a share, as its plan's mode reads them, and what the replies say about themselves."""
    return mode_of(plan).results(share, devices, published, OWN)
