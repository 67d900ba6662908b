"""Sums of products of records that stayed in their database: how its answer is laid out, and the moments it comes to.

A line is of a set of values that records have or lack together (`place`), and has their number `n` and further numbers
`s0`, `s1`, … in the order of `entries_of`. A line of its own counts all records, those that are faulty, and by rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from foldaway.numerics.block import Shape
from foldaway.plan import Plan
from foldaway.records import Fault, Faults
from foldaway.records.columns import columns_of
from foldaway.records.values import numbers
from foldaway.tallies.answer import faults_of
from foldaway.tallies.complete_cases import CompleteCases
from foldaway.tallies.group_moments import GroupMoments, MomentsShape

COUNTS = -1
"""The place of the line of counts."""


def entries_of(plan: Plan, values: Sequence[int]) -> list[tuple[str, tuple[int, ...]]]:
    """The numbers of a set's line: weights, means, sums and products about the means, and sums of absolute values."""
    covariates = len(plan.predictors) - 1
    columns = covariates + len(values)
    made: list[tuple[str, tuple[int, ...]]] = [("weight", ())]
    made += [(name, (at,)) for name in ("mean", "sum") for at in range(columns)]
    made += [("product", (one, two)) for one in range(columns) for two in range(one, columns)]
    return made + [("absolute", (at,)) for at in range(covariates, columns)]


def numbers_of(plan: Plan) -> int:
    """How many further numbers a line has."""
    return max(1 + len(faults_of(plan)), *(len(entries_of(plan, values)) for values in plan.present_together))


def read_products(answer: Any, plan: Plan) -> tuple[CompleteCases, Faults]:
    """The moments of complete cases, in the first arm and one group, and the faulty records."""
    names = ["place", "n", *(f"s{at}" for at in range(numbers_of(plan)))]
    columns, _, _ = columns_of(answer, names)
    lines = np.stack([numbers(columns[name], text=True)[0] for name in names], axis=1)
    by_place = {int(line[0]): (int(line[1]), line[2:]) for line in lines}
    empty = CompleteCases.empty(plan, 1, 1, weighted=False)
    parts = [
        _moments(part.shape, plan, values, *by_place[place])
        for place, (values, part) in enumerate(zip(empty.sets, empty.parts, strict=True))
    ]
    records, (faulty, *counts) = by_place[COUNTS]
    reasons = [
        Fault(plan.control, column, rule, int(count))
        for (column, rule), count in zip(faults_of(plan), counts, strict=False)
        if count
    ]
    everyone = None if empty.everyone is None else np.full((1, 1, 1), records - faulty)
    faults = Faults([(plan.control, int(faulty))] if faulty else [], reasons)
    return CompleteCases(empty.sets, tuple(parts), everyone), faults


def _moments(
    shape: MomentsShape, plan: Plan, values: Sequence[int], n: int, line: np.ndarray[Any, Any]
) -> GroupMoments:
    """The moments of a set's line."""
    row: Shape = shape.row
    if not n:
        return GroupMoments.empty(shape)
    gram, means, absolute = np.zeros((row.columns, row.columns)), np.zeros(row.columns), []
    for (name, index), value in zip(entries_of(plan, values), line, strict=False):
        if name == "weight":
            gram[0, 0] = value
        elif name == "mean":
            means[index[0] + 1] = value
        elif name == "absolute":
            absolute.append(value)
        else:
            one, two = (0, index[0] + 1) if name == "sum" else (index[0] + 1, index[1] + 1)
            gram[one, two] = gram[two, one] = value
    return GroupMoments.of_products(shape, n, gram, means, np.array(absolute))
