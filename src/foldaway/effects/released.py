"""What is said about a release: what it protects, what it has spent, and how much wider it made the intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from foldaway.effects.effect import Effect
from foldaway.errors import many
from foldaway.inference.intervals import critical
from foldaway.plan import Plan
from foldaway.tallies.release import cell_of, noisy_groups, release
from foldaway.tallies.sums import Sums

# An arm that is no larger than so many standard deviations of its count's noise is not told from it: the noise of a
# denominator would bias a mean by more than a hundredth of what the noise adds to it.
_CLEAR = 10

# How often noise is added once more, to see what it does to an estimate.
_AGAIN = 200

# If noise is more than this share of an effect's variance, what is left of it is not worth an estimate.
_MOSTLY = 0.9


def protected(plan: Plan) -> str:
    """What a release of the plan protects, in a sentence."""
    records = many(plan.unit_records, "record")
    match plan.protects:
        case "device":
            return f"It protects each device with all of its records, at most {records}."
        case "unit" if plan.whole_units:
            return (
                f"It protects each unit with all of its records, at most {records}, if they arrive in one batch, "
                "as the plan promises."
            )
        case "unit":
            return "It protects each unit, if it has one record, as the plan promises."
        case _:
            several = "" if plan.unit is None else "; the more records a unit has, the less it is protected"
            return f"It protects each record{several}."


def release_notes(plan: Plan, rows: Sequence[Effect]) -> Iterator[str]:
    """ε, δ, what is protected, and what that has cost."""
    assert plan.release is not None
    budget = f"ε = {plan.release.epsilon:g}, δ = {plan.release.delta:g}"
    yield (
        f"Released once, with noise ({budget}; noise and accounting by OpenDP). {protected(plan)} Counts "
        "contain noise too, and how many records were faulty or clipped is not shown."
    )
    wider = [row.widening for row in rows if row.widening is not None]
    mostly = any(row.reliable and row.widening is None for row in rows)
    if wider:
        least, most = f"{min(wider):.2f}", f"{max(wider):.2f}"
        some = "Some intervals are mostly noise; the others" if mostly else "Intervals"
        yield f"{some} are about {least if least == most else f'{least} to {most}'} times as wide as without noise."
    elif mostly:
        yield "The intervals are mostly noise: more units, narrower bounds or a larger ε would make them narrower."


def least_records(plan: Plan) -> int:
    """The fewest records of an arm that a release tells something of."""
    return math.ceil(_CLEAR * float(cell_of(plan).scale[0]) * math.sqrt(noisy_groups(plan)))


def drowned(plan: Plan, counts: Sequence[int]) -> str:
    """Why there is nothing to tell of arms of so many records; empty if there is."""
    if plan.release is None or min(counts) >= least_records(plan):
        return ""
    return f"an arm cannot be distinguished from the noise: this would take about {least_records(plan):,} records."


def noisier(plan: Plan, sums: Sums) -> list[Sums]:
    """Released sums with as much noise once more, drawn again and again; always the same."""
    rng = np.random.default_rng(0)
    return [release(plan, sums, rng) for _ in range(_AGAIN)]


def widening(plan: Plan, noise: float, df: float) -> float | None:
    """How many times as wide an interval is as without noise and in all of the plan's groups.

    Args:
        plan: The plan.
        noise: The share of the variance that is noise.
        df: The degrees of freedom of the interval.
    """
    if noise > _MOSTLY:
        return None
    groups = noisy_groups(plan)
    exact = df if groups == 1 else df * (plan.groups - 1) / (groups - 1)
    return critical(plan.confidence, df) / critical(plan.confidence, exact) / math.sqrt(1 - noise)
