"""The sample-ratio check: do the arms' counts fit the plan's probabilities?

Units were randomised, so units are to be counted. Where only records can be, and a unit may have several, Pearson's
statistic is too large by Σ m² / Σ m over the units' numbers of records m (the design effect; Rao and Scott 1981). A
bootstrap by unit tells Σ m²; without it, counts that do not fit say nothing.

Where units are dealt into groups, the spread of counts between these tells. Let d_g be the arms' counts in group g less
those that the plan's probabilities would give of the group's records. Units are randomised one by one and dealt to
groups at random, so the d_g are alike and their sum has the covariance G/(G − 1) Σ (d_g − d̄)(d_g − d̄)', however many
records the units have. Hotelling's T² tests whether it is zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
import numpy as np

from foldaway.inference.levels import LEAST_GROUPS
from foldaway.numerics.block import Floats

# Customary for this check, which runs with every result and should not cry wolf (Fabijan et al., KDD 2019).
SUSPICIOUS = 0.001

State = Literal["passes", "fails", "open"]


class SampleRatio(msgspec.Struct, frozen=True):
    """Observed counts, those expected under the plan, and the test between them.

    Attributes:
        counted: What was counted: ``"units"``, ``"records"``, or, over strata, ``"weighted records"``.
        observed: The arms' counts.
        expected: Those that the plan's probabilities would give.
        statistic: The test's statistic, chi-square but for what is estimated; None if the check is open.
        p_value: How rare counts so far from the plan are by chance; None if the check is open.
        test: ``"pearson"``; ``"groups"`` if its variance comes from the spread between groups of units, or
            ``"bootstrap"`` from a bootstrap by unit; ``"none"`` if the check is open: records do not fit the plan, but
            a unit may have several and units cannot be counted.
    """

    counted: str
    observed: dict[str, int]
    expected: dict[str, float]
    statistic: float | None
    p_value: float | None
    test: Literal["pearson", "groups", "bootstrap", "none"] = "pearson"

    @property
    def state(self) -> State:
        """Whether the counts fit, or whether that cannot be told."""
        if self.p_value is None:
            return "open"
        return "passes" if self.p_value >= SUSPICIOUS else "fails"

    @property
    def ok(self) -> bool:
        """Whether nothing says that the counts do not fit."""
        return self.state != "fails"

    def of_several(self) -> SampleRatio:
        """The check where a unit may have several records: it is open if these do not fit as they are.

        With units of several records they would only fit better: counts that fit as they are, fit.
        """
        return self if self.ok else msgspec.structs.replace(self, statistic=None, p_value=None, test="none")


def sample_ratio(observed: Mapping[str, int], probabilities: Mapping[str, float], counted: str) -> SampleRatio:
    """Pearson's chi-square test of the arms' counts.

    Example:
        >>> check = sample_ratio({"a": 5_000, "b": 5_400}, {"a": 0.5, "b": 0.5}, "records")
        >>> round(check.statistic, 2), check.state
        (15.38, 'fails')
    """
    from scipy.special import chdtrc

    expected, statistic = _pearson(observed, probabilities)
    return SampleRatio(counted, dict(observed), expected, statistic, float(chdtrc(len(expected) - 1, statistic)))


def sample_ratio_of_records(
    observed: Mapping[str, int], probabilities: Mapping[str, float], squares: float, df: int
) -> SampleRatio:
    """The test of records where a unit may have several.

    Args:
        observed: The arms' numbers of records.
        probabilities: The plan's.
        squares: Σ m² over all units, estimated.
        df: The degrees of freedom of that estimate.

    Example:
        >>> sample_ratio_of_records({"a": 5_000, "b": 5_400}, {"a": 0.5, "b": 0.5}, 104_000.0, 1000).state
        'passes'
        >>> sample_ratio({"a": 5_000, "b": 5_400}, {"a": 0.5, "b": 0.5}, "records").of_several().state
        'open'
    """
    from scipy.special import fdtrc

    expected, pearson = _pearson(observed, probabilities)
    statistic = pearson * sum(observed.values()) / squares if squares else 0.0
    freedom = len(expected) - 1
    p_value = float(fdtrc(freedom, df, statistic / freedom))
    return SampleRatio("records", dict(observed), expected, statistic, p_value, "bootstrap")


def sample_ratio_of_groups(
    records: Floats, probabilities: Mapping[str, float], counted: str = "records"
) -> SampleRatio:
    """The test of records that come by groups of units.

    An alarm says that either the randomisation broke, or an arm changes how many records a unit has. Records are by arm
    and group.

    Example:
        >>> rng = np.random.default_rng(1)
        >>> sound = rng.poisson(100, (2, 128))
        >>> sample_ratio_of_groups(sound, {"a": 0.5, "b": 0.5}).state
        'passes'
        >>> sample_ratio_of_groups(sound * np.array([[1], [2]]), {"a": 0.5, "b": 0.5}).state
        'fails'
    """
    observed = {arm: int(n) for arm, n in zip(probabilities, records.sum(axis=1), strict=True)}
    groups = records[:, records.sum(axis=0) > 0]
    shares = np.array(list(probabilities.values()), dtype=np.float64)[:, None] * groups.sum(axis=0)
    test = total_is_zero((groups - shares)[1:])  # the control's is minus the sum of the others'
    if test is None:
        return sample_ratio(observed, probabilities, "records").of_several()
    return SampleRatio(counted, observed, _pearson(observed, probabilities)[0], *test, "groups")


def total_is_zero(apart: Floats) -> tuple[float, float] | None:
    """Hotelling's T² of a sum over groups that is zero but for chance, by arm, and its p-value.

    None if groups are too few, or do not vary.
    """
    from scipy.special import fdtrc

    free, count = apart.shape
    if count < LEAST_GROUPS + free:
        return None
    away = apart - apart.mean(axis=1, keepdims=True)
    covariance = count / (count - 1) * away @ away.T
    if np.linalg.matrix_rank(covariance) < free:
        return None
    total = apart.sum(axis=1)
    statistic = float(total @ np.linalg.solve(covariance, total))
    return statistic, float(fdtrc(free, count - free, statistic * (count - free) / (free * (count - 1))))


def sample_ratio_with_noise(
    observed: Mapping[str, int], probabilities: Mapping[str, float], variance: float
) -> SampleRatio:
    """Pearson's test of counts to which noise of this variance was added, arm by arm.

    Example:
        >>> sample_ratio_with_noise({"a": 5_000, "b": 5_400}, {"a": 0.5, "b": 0.5}, 1e4).state
        'passes'
    """
    from scipy.special import chdtrc

    pi = np.array([probabilities[arm] for arm in observed])
    counts = np.array(list(observed.values()), dtype=np.float64)
    away = np.eye(len(pi)) - pi[:, None]  # from counts to how far they are from their share of the total
    covariance = counts.sum() * (np.diag(pi) - np.outer(pi, pi)) + variance * away @ away.T
    apart = (away @ counts)[1:]
    statistic = float(apart @ np.linalg.solve(covariance[1:, 1:], apart))
    expected, _ = _pearson(observed, probabilities)
    return SampleRatio("records", dict(observed), expected, statistic, float(chdtrc(len(pi) - 1, statistic)))


def _pearson(observed: Mapping[str, int], probabilities: Mapping[str, float]) -> tuple[dict[str, float], float]:
    """The expected counts, and the chi-square statistic."""
    total = sum(observed.values())
    expected = {arm: total * share for arm, share in probabilities.items()}
    return expected, sum((observed[arm] - n) ** 2 / n for arm, n in expected.items()) if total else 0.0
