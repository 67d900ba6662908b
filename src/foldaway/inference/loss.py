"""Whether the arms lost different shares of their records, or of an outcome: if they did, what is left is not alike.

Where units are dealt into groups, an arm's share is lost/all by group, its error the jackknife's, and each arm is
compared with the control; the smallest p-value counts, times the number of comparisons. Of independent records it is
Pearson's test of the table, or, within strata, Mantel and Haenszel's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from foldaway.inference.intervals import p_value
from foldaway.inference.jackknife import Cells, jackknife, mean
from foldaway.inference.levels import difference_of, withheld
from foldaway.inference.sample_ratio import SUSPICIOUS, State
from foldaway.numerics.block import Floats

WORTH_A_LOOK = 0.05
"""Below this p-value a reader should ask why the arms lost different shares; effects stand."""

# The arms' losses add up to the stratum's: next to the largest, what is left of a variance that is zero.
_SINGULAR = 1e-9


class Loss(msgspec.Struct, frozen=True):
    """How many records of each arm lack an outcome, or were dropped, and the test between the arms.

    Attributes:
        outcome: The outcome; None for faulty records, which are in no outcome.
        lost: Records of each arm without it.
        records: All records of each arm.
        p_value: How rare shares so far apart are by chance; None if that cannot be told, or nothing is lost.
        test: ``"groups"`` if the error comes from groups of units, ``"pearson"`` if records are taken as independent.
    """

    outcome: str | None
    lost: dict[str, int]
    records: dict[str, int]
    p_value: float | None
    test: Literal["groups", "pearson"] = "pearson"

    @property
    def state(self) -> State:
        """Whether the arms lost alike, or whether that cannot be told; ``"look"`` where chance seldom gives as much."""
        if not any(self.lost.values()):
            return "passes"
        if self.p_value is None:
            return "open"
        return "fails" if self.p_value < SUSPICIOUS else "look" if self.p_value < WORTH_A_LOOK else "passes"


def loss_of(
    outcome: str | None, arms: Sequence[str], lost: Floats, records: Floats, of: tuple[Floats, Floats] | None = None
) -> Loss:
    """The loss of an outcome.

    Args:
        outcome: The outcome; None for faulty records.
        arms: The arms' names.
        lost: Records without it, by arm and group; one group if records are independent.
        records: All records, likewise.
        of: What the test is of where arms hold strata in different proportions: the weights of both, by arm and group;
            or both by arm and stratum, if records are independent.

    Example:
        >>> loss_of("income", ["a", "b"], np.array([[85.0], [6.0]]), np.array([[1000.0], [1000.0]])).state
        'fails'
    """
    counts = {"lost": lost, "records": records}
    by_arm = {
        name: dict(zip(arms, each.sum(axis=1).astype(int).tolist(), strict=True)) for name, each in counts.items()
    }
    by_group = records.shape[1] > 1
    p = None if not lost.any() else (_by_groups if by_group else _by_strata)(*(of or (lost, records)))
    return Loss(outcome, **by_arm, p_value=p, test="groups" if by_group else "pearson")


def _by_groups(lost: Floats, records: Floats) -> float | None:
    levels = jackknife(mean, Cells(records.T, lost.T))
    found = []
    for arm in range(1, len(records)):
        if withheld(levels, (arm, 0)):
            return None
        apart = difference_of(levels, arm)
        error = float(np.sqrt(apart.variance))
        found.append(p_value(float(apart.estimate) / error, float(apart.df)) if error else 1.0)
    return min(1.0, len(found) * min(found))


def _by_strata(lost: Floats, records: Floats) -> float | None:
    """Given what a stratum lost in all, an arm's loss is hypergeometric; of one stratum it is Pearson's test."""
    from scipy.special import chdtrc

    lost, records = (each[:, records.sum(axis=0) > 1] for each in (lost, records))
    n, gone = records.sum(axis=0), lost.sum(axis=0)
    scale = gone * (n - gone) / (n * (n - (len(n) > 1)))
    covariance = np.diag(records @ scale) - (records * scale / n) @ records.T
    largest = float(np.abs(covariance).max(initial=0.0))
    if not largest:  # nobody is left, or there is nothing to compare with
        return None
    away = (lost - records * gone / n).sum(axis=1)
    statistic = away @ np.linalg.pinv(covariance, rcond=_SINGULAR, hermitian=True) @ away
    return float(chdtrc(np.linalg.matrix_rank(covariance, tol=_SINGULAR * largest, hermitian=True), statistic))
