"""The baseline table's part of what a site sends: by arm and trait a count, a mean, squares about it and sizes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foldaway.errors import MessageError
from foldaway.federated.messages import packed, unpacked
from foldaway.federated.modes.share import units_of
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.tallies import grouped_of
from foldaway.tallies.baseline import traits_shape
from foldaway.tallies.sums import Sums
from foldaway.trial import Trial

_OFF = 1e-6


def sent(trial: Trial) -> bytes | None:
    """What a site sends; nothing of a trait that too few units of an arm have. None if the plan has no baseline."""
    numbers = _told(trial)
    return None if numbers is None else packed(numbers)


def counted(trial: Trial) -> list[int]:
    """Of how many records each trait is sent, by arm."""
    numbers = _told(trial)
    return [] if numbers is None else numbers[..., 0].astype(int).reshape(-1).tolist()


def _told(trial: Trial) -> Floats | None:
    held = grouped_of(trial.tallies).baseline if trial.plan.baseline else None
    if held is None:
        return None
    baseline = held.sums
    units = np.array(list(units_of(trial).values()))
    numbers = _numbers(baseline)
    few = _units_with(numbers[..., 0], baseline.records.sum(axis=1), units) < trial.plan.privacy.smallest_cell
    return np.where(few[..., None], 0.0, numbers)


def received(plan: Plan, data: bytes | None, records: Floats, units: Sequence[int]) -> Sums | None:
    """The sums that a site has sent, of so many records and units by arm.

    Raises:
        MessageError: They do not fit the plan, or the records.
    """
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


def _numbers(sums: Sums) -> Floats:
    """The count, the mean, the sum of squares about it and that of sizes, by arm and trait."""
    present = np.stack([sums.counts(trait)[:, 0] for trait in range(sums.shape.outcomes)], axis=-1)
    totals = np.stack([sums.totals(trait)[:, 0] for trait in range(sums.shape.outcomes)], axis=-1)
    mean = np.divide(totals, present, out=np.zeros(present.shape), where=present > 0)
    return np.stack([present, mean, sums.square, sums.absolute], axis=-1)


def _units_with(present: Floats, records: Floats, units: Floats) -> Floats:
    """How many units have a trait at the least: each that lacks it has one record or more without it."""
    least: Floats = present - (records - units)[:, None]
    return least
