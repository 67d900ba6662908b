"""What a message may say: numbers that records of this plan can have, next to those that are here already."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foldaway.errors import MessageError
from foldaway.federated.coordinator.models import Segment, readings
from foldaway.federated.messages import MOST_BYTES
from foldaway.inference.offered import estimators_of
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.tallies.arm import ArmTally

_ROUNDING = 1e-6

# The number, the count, and MessagePack's own bytes.
_HEAD = 64

# A column whose root mean square is so many times that of all other devices is a slip of units at the least.
_ABSURD = 1e6
# How many records must be here before others are measured by them.
_MEASURE = 100

# The leverage correction makes a score longer by at most this, since directions beyond are left out.
_CORRECTION = 1e8


def most_bytes(plan: Plan) -> int:
    """How long the longest message of the plan's devices can be: the factor, or the scores for all models."""
    K, k = len(plan.columns), len(plan.regressors)
    corrected = plan.federated is not None and plan.federated.leverage is not None
    scores = len(plan.outcomes) * len(estimators_of(plan)) * max(k, 2) * (2 if corrected else 1)
    longest_arm = max(len(arm.encode()) for arm in plan.arms)
    return min(_HEAD + longest_arm + 8 * max(K * (K + 1) // 2, scores), MOST_BYTES)


def check_triangle(plan: Plan, n: int, R: Floats) -> None:
    """Refuse a factor that no n records of the plan have.

    Raises:
        MessageError: The intercept's length is not the root of n, or there are more directions than records.
    """
    if plan.weight is None and abs(R[0, 0] ** 2 - n) > _ROUNDING * n:
        raise MessageError("the message's factor is not one of so many records: its first number is not their root.")
    if not R[0, 0]:
        raise MessageError("the message's factor has no intercept.")
    lengths = np.linalg.norm(R, axis=0)
    # Where columns depend on one another, a factor may have more rows than rank.
    if n < len(R) and np.linalg.matrix_rank(R / np.where(lengths > 0, lengths, 1), tol=_ROUNDING) > n:
        raise MessageError("the message's factor has more directions than records.")


def most_squares(arms: Sequence[ArmTally]) -> Floats | None:
    """The largest mean squares, by column, that are not absurd next to those here; none while there are too few."""
    if sum(arm.n for arm in arms) < _MEASURE:
        return None
    here = np.sum([np.sum(arm.raw_factor() ** 2, axis=0) for arm in arms], axis=0)
    # A column that has been zero until now says nothing about its size.
    return np.where(here > 0, _ABSURD**2 * here / here[0], np.inf)


def check_size(R: Floats, most: Floats) -> None:
    """Refuse a factor of numbers that are absurdly large.

    Raises:
        MessageError: They are.
    """
    if np.any(np.sum(R**2, axis=0) > most * R[0, 0] ** 2):
        raise MessageError("the message's numbers are absurdly large next to those of all other devices.")


def most_scores(arm: ArmTally, place: int, segments: Sequence[Segment]) -> Floats:
    """The largest scores that any part of the arm's records can have.

    A device's records are among those whose moments are here, so |Σ x e| over them is at most |x| |e| over all
    (Cauchy and Schwarz).
    """
    k = arm.shape.regressors
    parts = [np.empty(0)]
    for segment in segments:
        X, E = readings(segment, place, arm.frame.F, arm.factor.R, k)
        most = np.outer(np.linalg.norm(X, axis=0), np.linalg.norm(E, axis=0)).ravel()
        slack = _ROUNDING * float(np.linalg.norm(X)) * float(np.linalg.norm(arm.factor.R[:, k + segment.model.outcome]))
        parts.append((most + slack) * (_CORRECTION if segment.corrected else 1.0))
    return np.concatenate(parts)
