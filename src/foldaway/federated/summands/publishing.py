"""What a server publishes of its summands, once, when the trial ends; and what both servers' come to."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foldaway.errors import StateError
from foldaway.federated.messages import PublishedSums
from foldaway.federated.summands.summands import Summands
from foldaway.federated.summands.words import Words, count_of, packed, read, unpacked
from foldaway.plan import Plan
from foldaway.plan.fixed_point import bits_of
from foldaway.tallies.release import noise_of, noisy_groups
from foldaway.trial import Trial

LEAST_GROUPS = 8
"""Fewer groups give no standard error to speak of."""


def why_not(plan: Plan, summands: Summands) -> str | None:
    """Why a server may not publish, from its own counts of reports; None if it may, and where noise decides."""
    if plan.release is not None:
        return None
    privacy, total = plan.privacy, int(summands.reports.sum())
    if total < privacy.cohort:
        return f"both servers have reports of {total:,} devices, fewer than the plan's cohort ({privacy.cohort:,})"
    if _groups_of(plan, summands) < LEAST_GROUPS:
        return (
            f"with the reports of {total:,} devices, fewer than {LEAST_GROUPS} groups have the plan's smallest_cell "
            f"({privacy.smallest_cell:,}) in every arm"
        )
    return None


def publish(plan: Plan, summands: Summands) -> PublishedSums:
    """The sums: groups are added until each has `smallest_cell` reports of every arm. Of a release, with noise.

    What a release does not tell is left out: without it, ỹ of an outcome that is not adjusted would be exact.
    """
    groups = noisy_groups(plan) if plan.release is not None else _groups_of(plan, summands)
    words = _regrouped(summands.words, groups)
    if plan.release is not None:
        noise = noise_of(plan)
        told = np.isfinite(noise).all(axis=(0, 1))
        drawn = np.rint(np.where(told, noise, 0) * np.exp2([0, *bits_of(plan)]))
        words = np.where(told, words + drawn.astype(np.int64).astype(np.uint64), np.uint64(0))
    return PublishedSums(summands.digest, groups, packed(words))


def joined(
    plan: Plan, ours: PublishedSums, theirs: PublishedSums, reports: NDArray[np.int64] | None = None
) -> tuple[Trial, list[tuple[int, int]]]:
    """What both servers' sums come to, and the arms and groups that are left out.

    Args:
        plan: The plan.
        ours: What this server publishes.
        theirs: What the other has published.
        reports: How many reports there are, by arm and group. A group whose records these devices cannot have is left
            out: else a single device that claims less than no record would empty its arm.

    Raises:
        StateError: They are not of the same reports.
    """
    if (ours.digest, ours.groups, len(ours.words)) != (theirs.digest, theirs.groups, len(theirs.words)):
        raise StateError("the two servers have not added up the same reports, so there is nothing to read.")
    cells = len(plan.arms) * ours.groups
    words = sum(unpacked(each.words, cells * count_of(plan)) for each in (ours, theirs))
    n, sums = read(plan, np.asarray(words).reshape(len(plan.arms), ours.groups, -1))
    trial = Trial(plan)
    if plan.release is not None:
        trial.publish(n.astype(np.float64), sums)
        return trial, []
    impossible = np.zeros(n.shape, dtype=bool)
    if reports is not None:
        devices = _regrouped(reports, ours.groups)
        impossible = (n < devices) | (n > devices * plan.unit_records)
    arm, group = np.nonzero((n != 0) & ~impossible)
    trial.fold_totals(arm, group, n[arm, group], sums[arm, group])
    return trial, [(int(arm), int(group)) for arm, group in np.argwhere(impossible)]


def _groups_of(plan: Plan, summands: Summands) -> int:
    groups = plan.groups
    while groups > 1 and _regrouped(summands.reports, groups).min() < plan.privacy.smallest_cell:
        groups //= 2
    return groups


def _regrouped(cells: Words | np.ndarray, groups: int) -> np.ndarray:
    """Groups with the same lowest bits together."""
    found: np.ndarray = cells.reshape(len(cells), -1, groups, *cells.shape[2:]).sum(axis=1, dtype=cells.dtype)
    return found
