"""The baseline table's part of what a site sends: by arm and trait a count, a mean, squares about it and sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from foldaway.errors import MessageError
from foldaway.federated.messages import SiteSums, packed, unpacked
from foldaway.federated.modes.share import ServerShare, is_plain, units_of
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.tallies import grouped_of
from foldaway.tallies.baseline import BaselineTallies, traits_shape
from foldaway.tallies.segment import MOST_LEVELS
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
    held = grouped_of(trial.tallies).baseline
    if held is None:
        return {}
    records, units, least = held.sums.records.sum(axis=1), _units(trial), trial.plan.privacy.smallest_cell
    return {
        column: {level: counts.astype(int).tolist() for level, counts in by_level.items()}
        for column, by_level in held.text_by_level().items()
        if _of_enough(sum(by_level.values(), np.zeros(len(units))), records, units, least)
    }


def counted(trial: Trial) -> list[int]:
    """Of how many records each trait is sent, by arm; and each characteristic of text."""
    numbers = _told(trial)
    if numbers is None:
        return []
    text, nobody = levels(trial), {"": [0] * len(trial.plan.arms)}
    of_text = [np.sum(list(text.get(each, nobody).values()), axis=0) for each in trial.plan.unlisted_characteristics]
    return [int(n) for counts in (*numbers[..., 0], *of_text) for n in counts]


def _told(trial: Trial) -> Floats | None:
    held = grouped_of(trial.tallies).baseline if trial.plan.baseline else None
    if held is None:
        return None
    baseline = held.sums
    numbers = _numbers(baseline)
    few = _units_with(numbers[..., 0], baseline.records.sum(axis=1), _units(trial)) < trial.plan.privacy.smallest_cell
    return np.where(few[..., None], 0.0, numbers)


def received(share: ServerShare, message: SiteSums, records: Floats) -> BaselineTallies | None:
    """What a site has sent, of so many records by arm.

    Raises:
        MessageError: It does not fit the plan, the records, or what other sites have sent.
    """
    plan = share.plan
    sums = _sums_received(plan, message.baseline or None, records, message.units)
    if sums is None:
        return None
    _require_levels(plan, message.levels, sums, records, np.asarray(message.units))
    baseline = replace(BaselineTallies.empty(plan), sums=sums).with_text(message.levels)
    before = grouped_of(share.trial.tallies).baseline if plan.unlisted_characteristics else None
    if before is not None and (mixed := before.mixed_with(baseline)):
        raise MessageError(
            f"the column {mixed[0]!r} of the baseline has numbers here and text at other sites, or the other way "
            "round: write it as the others do, or list its `levels` in a plan of another name."
        )
    return baseline


def _require_levels(
    plan: Plan, levels: Mapping[str, Mapping[str, Sequence[int]]], sums: Sums, records: Floats, units: Floats
) -> None:
    """Refuse levels that the plan or the records cannot have, or whose names are those of too few."""
    least, arms = plan.privacy.smallest_cell, len(plan.arms)
    for column, by_level in levels.items():
        counts = [np.asarray(each) for each in by_level.values()]
        known = column in plan.unlisted_characteristics and len(counts) <= MOST_LEVELS
        if not known or any(len(each) != arms for each in counts) or not all(map(is_plain, by_level)):
            raise MessageError("the message has levels of its baseline that the plan cannot have.")
        having = np.sum(counts, axis=0)
        numeric = sums.counts(plan.traits.index((column, None))).any()
        if numeric or np.any(having > records) or not _of_enough(having, records, units, least):
            raise MessageError("the message's levels of its baseline do not fit its records.")
        if any(name and min(each) < least for name, each in by_level.items()):
            raise MessageError("the message names levels of its baseline that fewer than `smallest_cell` units have.")


def _sums_received(plan: Plan, data: bytes | None, records: Floats, units: Sequence[int]) -> Sums | None:
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
    enough = _units_with(present, records, np.asarray(units)) >= plan.privacy.smallest_cell
    if np.any((present > 0) & ~enough):
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


def _units(trial: Trial) -> Floats:
    """By arm."""
    return np.array(list(units_of(trial).values()))


def _numbers(sums: Sums) -> Floats:
    """The count, the mean, the sum of squares about it and that of sizes, by arm and trait."""
    present = np.stack([sums.counts(trait)[:, 0] for trait in range(sums.shape.outcomes)], axis=-1)
    totals = np.stack([sums.totals(trait)[:, 0] for trait in range(sums.shape.outcomes)], axis=-1)
    mean = np.divide(totals, present, out=np.zeros(present.shape), where=present > 0)
    return np.stack([present, mean, sums.square, sums.absolute], axis=-1)


def _of_enough(having: Floats, records: Floats, units: Floats, least: int) -> bool:
    """Whether of each arm enough units have a value, or nobody has one."""
    return bool(np.all((having == 0) | (_units_with(having[:, None], records, units)[:, 0] >= least)))


def _units_with(present: Floats, records: Floats, units: Floats) -> Floats:
    """How many units have a trait at the least: each that lacks it has one record or more without it."""
    least: Floats = present - (records - units)[:, None]
    return least
