"""The baseline table's part of what a site sends: by arm and trait a count, a mean, squares about it and sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from foldaway.errors import MessageError
from foldaway.federated.messages import SiteSums, packed, unpacked
from foldaway.federated.modes.share import ServerShare, is_plain
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.records.check import MOST_LEVELS
from foldaway.tallies import grouped_of
from foldaway.tallies.baseline import BaselineTallies, traits_shape
from foldaway.tallies.sums import Sums
from foldaway.trial import Trial

_OFF = 1e-6


def sent(trial: Trial) -> bytes | None:
    """What a site sends; nothing of a trait that too few units of an arm have. None if the plan has no baseline."""
    numbers = _told(trial)
    return None if numbers is None else packed(numbers)


def levels(trial: Trial) -> dict[str, dict[str, list[int]]]:
    """Of each characteristic of text, how many records have which level, by arm: see `SiteSums`.

    Nothing of one that too few units of an arm have a value of. Names are known of levels that enough units have.
    """
    held, least = grouped_of(trial.tallies).baseline, trial.plan.privacy.smallest_cell
    if held is None:
        return {}
    units = dict(zip(trial.plan.unlisted_characteristics, _units(trial)[len(trial.plan.baseline) :], strict=True))
    return {
        column: {level: counts.astype(int).tolist() for level, counts in by_level.items()}
        for column, by_level in held.text_by_level().items()
        if not np.any((units[column] > 0) & (units[column] < least))
    }


def counted(trial: Trial) -> list[int]:
    """How many units of each arm have a value of each characteristic that is sent; then of each sent as text."""
    plan, numbers = trial.plan, _told(trial)
    if numbers is None:
        return []
    text = levels(trial)
    told = [numbers[:, [own == column for own, _ in plan.traits], 0].any(axis=1) for column in plan.baseline]
    told += [np.array(column in text) for column in plan.unlisted_characteristics]
    pairs = zip(told, _units(trial), strict=True)
    return [int(n) for is_sent, units in pairs for n in np.where(is_sent, units, 0)]


def _told(trial: Trial) -> Floats | None:
    held = grouped_of(trial.tallies).baseline if trial.plan.baseline else None
    if held is None:
        return None
    units = dict(zip(trial.plan.baseline, _units(trial), strict=False))
    few = np.stack([units[column] for column, _ in trial.plan.traits], axis=-1) < trial.plan.privacy.smallest_cell
    return np.where(few[..., None], 0.0, _numbers(held.sums))


def received(share: ServerShare, message: SiteSums, records: Floats) -> BaselineTallies | None:
    """What a site has sent, of so many records by arm.

    Raises:
        MessageError: It does not fit the plan, or the records.
    """
    plan = share.plan
    sums = _sums_received(plan, message.baseline or None, records)
    if sums is None:
        return None
    _require_levels(plan, message.levels, records)
    return replace(BaselineTallies.empty(plan), sums=sums).with_text(message.levels)


def _require_levels(plan: Plan, levels: Mapping[str, Mapping[str, Sequence[int]]], records: Floats) -> None:
    """Refuse levels that the plan or the records cannot have, or whose names are those of too few."""
    least, arms = plan.privacy.smallest_cell, len(plan.arms)
    for column, by_level in levels.items():
        counts = [np.asarray(each) for each in by_level.values()]
        known = column in plan.unlisted_characteristics and 0 < len(counts) <= MOST_LEVELS + 1
        if not known or any(len(each) != arms for each in counts) or not all(map(is_plain, by_level)):
            raise MessageError("the message has levels of its baseline that the plan cannot have.")
        having = np.sum(counts, axis=0)
        if np.any(having > records) or np.any((having > 0) & (having < least)):
            raise MessageError("the message's levels of its baseline do not fit its records.")
        if any(name and min(each) < least for name, each in by_level.items()):
            raise MessageError("the message names levels of its baseline that fewer than `smallest_cell` units have.")


def _sums_received(plan: Plan, data: bytes | None, records: Floats) -> Sums | None:
    """The sums, if they fit."""
    if (data is not None) != bool(plan.baseline):
        raise MessageError("the message must have the baseline's sums if, and only if, the plan has a `baseline`.")
    if data is None:
        return None
    shape = traits_shape(plan)
    numbers = unpacked(data, 4 * shape.arms * shape.outcomes).reshape(shape.arms, shape.outcomes, 4)
    present, mean, square, absolute = np.moveaxis(numbers, -1, 0)
    whole = np.all(present == np.floor(present)) and np.all(present >= 0) and np.all(present <= records[:, None])
    shares = [trait for trait, (_, level) in enumerate(plan.traits) if level is not None]
    n, p, about = present[:, shares], mean[:, shares], square[:, shares]
    off = _OFF * np.maximum(n, 1)
    shared = np.all((p >= 0) & (p <= 1) & (np.abs(n * p - np.round(n * p)) <= off))
    fits = whole and shared and np.all(np.abs(about - n * p * (1 - p)) <= off)
    fits = fits and np.all(absolute >= np.abs(present * mean) * (1 - _OFF))
    if not fits or np.any(square < 0) or np.any((mean != 0) & (present == 0)):
        raise MessageError("the message's baseline does not fit its records.")
    if np.any((present > 0) & (present < plan.privacy.smallest_cell)):
        raise MessageError("the message's baseline is of fewer units than the plan's `smallest_cell`.")
    total = present * mean
    return Sums(
        shape,
        level=np.zeros(shape.outcomes),
        records=records[:, None].astype(np.float64),
        present=present[:, None],
        weight=None,
        total=total[:, None],
        mass=present.copy(),
        first=total,
        square=square.copy(),
        cross=None,
        absolute=absolute.copy(),
    ).settled()


def _units(trial: Trial) -> list[NDArray[np.int64]]:
    """By arm, how many units have a value of each characteristic; then of each that may be text, how many have text."""
    return [seen.units() for seen in trial.seen.characteristics]


def _numbers(sums: Sums) -> Floats:
    """The count, the mean, the sum of squares about it and that of sizes, by arm and trait."""
    present = np.stack([sums.counts(trait)[:, 0] for trait in range(sums.shape.outcomes)], axis=-1)
    totals = np.stack([sums.totals(trait)[:, 0] for trait in range(sums.shape.outcomes)], axis=-1)
    mean = np.divide(totals, present, out=np.zeros(present.shape), where=present > 0)
    return np.stack([present, mean, sums.square, sums.absolute], axis=-1)
