"""The attack on answers: two of them, subtracted, are the sums of the records in between.

With n records and a mean m in an arm, the records between two answers have the sum n₂m₂ − n₁m₁. If few people have the
outcome, that is the amount of one of them more often than not. Rounding to a step h leaves n h/2 of doubt on each side.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from foldaway.auditing.cells import ArmCells, solve
from foldaway.auditing.finding import NEAR, Finding
from foldaway.effects import Effects
from foldaway.inference.rounding import STEPS

NAME = "differencing"


class AnswerTold(NamedTuple):
    """What an answer tells of one arm and outcome: the number of records, their mean, and how far it may be off."""

    records: float
    mean: float
    doubt: float


def told_by(effects: Effects) -> dict[tuple[str, str], AnswerTold]:
    """The arms' means by outcome and arm, in rows of the difference in means."""
    found: dict[tuple[str, str], AnswerTold] = {}
    for row in effects:
        if row.estimator == "difference" and row.estimate is not None and row.control_level is not None:
            # Half a step of the smaller of two levels' errors, as if both arms were alike.
            doubt = (row.std_error or 0.0) / math.sqrt(2) / STEPS / 2 if effects.rounded else 0.0
            found[row.outcome, row.control] = AnswerTold(row.n_control or 0, row.control_level, doubt)
            found[row.outcome, row.arm] = AnswerTold(row.n_arm or 0, row.control_level + row.estimate, doubt)
    return found


def _between(points: Sequence[AnswerTold]) -> ArmCells:
    """The records between one answer and the next as cells; sums that are in doubt are left out."""
    records, totals = [], []
    for before, now in pairwise(points):
        total = now.records * now.mean - before.records * before.mean
        doubt = now.records * now.doubt + before.records * before.doubt
        noise = 1e-9 * abs(now.records * now.mean)
        if now.records > before.records and doubt <= NEAR * abs(total) + noise:
            records.append(now.records - before.records)
            totals.append(0.0 if abs(total) <= noise else total)
    return ArmCells(np.array(records), np.array(totals), np.inf, positive=False)


def attack_answers(answers: Sequence[Effects]) -> Iterator[Finding]:
    """How many people's amounts the answers' differences are."""
    series: dict[tuple[str, str], list[AnswerTold]] = {}
    for answer in answers:
        for place, told in told_by(answer).items():
            series.setdefault(place, []).append(told)
    people: dict[str, list[float]] = {}
    for (outcome, _), points in series.items():
        found = solve(_between(points))
        exact, claims = people.get(outcome, [0.0, 0.0])
        people[outcome] = [exact + len(found.alone) + found.sparse, claims + len(found.alone) + found.claims]
    for outcome, (exact, claims) in people.items():
        yield from Finding.of(
            round(exact),
            claims=round(claims),
            attack=NAME,
            outcome=outcome,
            numbers=f"counts and means by arm in {len(answers):,} answers",
            remedy="Tell rounded effects (the default), or set a larger `cohort` in `[privacy]`.",
        )
