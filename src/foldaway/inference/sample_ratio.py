"""The sample-ratio check: do the arms' counts fit the plan's probabilities?

Units were randomised, so units are counted where they can be, and records where these are independent. Where only
records can be counted and a unit may have several, the spread of counts between groups of units tells what chance does;
an arm may then have more records because its units have more, which no randomisation prevents. So such a check warns,
and the others veto.

p-values hold however often one looks (`ratio_over_time.py`), except in a release, which is one look.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
import numpy as np

from foldaway.inference.ratio_over_time import ratio_p_value, ratio_p_value_of_groups
from foldaway.numerics.block import Floats

# Customary for this check, which runs with every result and should not cry wolf (Fabijan et al., KDD 2019).
SUSPICIOUS = 0.001

State = Literal["passes", "look", "fails", "open"]


class SampleRatio(msgspec.Struct, frozen=True):
    """Observed counts, those expected under the plan, and the test between them.

    Attributes:
        counted: What was counted: ``"units"``, ``"records"``, or, over strata, ``"weighted records"``.
        observed: The arms' counts.
        expected: Those that the plan's probabilities would give.
        p_value: How rare counts so far from the plan are by chance, however often one looks; None if the check is open.
        test: ``"evidence"``: one over the evidence against the plan's probabilities, of counts that were randomised one
            by one; ``"groups"``: of records, by the spread between groups of units; ``"noise"``: Pearson's test, for
            one look, of counts with a release's noise; ``"none"`` if the check is open: records come by groups of
            units, and too few groups have some.
    """

    counted: str
    observed: dict[str, int]
    expected: dict[str, float]
    p_value: float | None
    test: Literal["evidence", "groups", "noise", "none"] = "evidence"

    @property
    def state(self) -> State:
        """Whether the counts fit; ``"look"`` where they do not, though the randomisation may be sound."""
        if self.p_value is None:
            return "open"
        if self.p_value >= SUSPICIOUS:
            return "passes"
        return "look" if self.test == "groups" else "fails"

    @property
    def ok(self) -> bool:
        """Whether nothing says that the randomisation broke."""
        return self.state != "fails"


def sample_ratio(observed: Mapping[str, int], probabilities: Mapping[str, float], counted: str) -> SampleRatio:
    """The test of counts that were randomised one by one.

    Example:
        >>> check = sample_ratio({"a": 5_000, "b": 5_600}, {"a": 0.5, "b": 0.5}, "records")
        >>> f"{check.p_value:.1e}", check.state
        ('7.1e-07', 'fails')
    """
    counts, shares = (np.array([of[arm] for arm in observed], dtype=np.float64) for of in (observed, probabilities))
    p_value = float(ratio_p_value(counts, shares))
    return SampleRatio(counted, dict(observed), _expected(observed, probabilities), p_value)


def sample_ratio_of_groups(records: Floats, probabilities: Mapping[str, float], *, once: bool = False) -> SampleRatio:
    """The test of records that come by groups of units.

    Args:
        records: Their number, by arm and group.
        probabilities: The plan's.
        once: Whether this is the only look.

    Example:
        >>> rng = np.random.default_rng(1)
        >>> sound = rng.poisson(100, (2, 128))
        >>> sample_ratio_of_groups(sound, {"a": 0.5, "b": 0.5}).state
        'passes'
        >>> sample_ratio_of_groups(sound * np.array([[1], [2]]), {"a": 0.5, "b": 0.5}).state
        'look'
    """
    observed = {arm: int(n) for arm, n in zip(probabilities, records.sum(axis=1), strict=True)}
    p_value = float(ratio_p_value_of_groups(records, np.array(list(probabilities.values())), once=once))
    return by_groups("records", observed, _expected(observed, probabilities), p_value)


def by_groups(counted: str, observed: dict[str, int], expected: dict[str, float], p_value: float) -> SampleRatio:
    """The check with a p-value from groups, which is NaN if they are too few."""
    if np.isnan(p_value):
        return SampleRatio(counted, observed, expected, None, "none")
    return SampleRatio(counted, observed, expected, p_value, "groups")


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
    p_value = float(chdtrc(len(pi) - 1, statistic))
    return SampleRatio("records", dict(observed), _expected(observed, probabilities), p_value, "noise")


def _expected(observed: Mapping[str, int], probabilities: Mapping[str, float]) -> dict[str, float]:
    total = sum(observed.values())
    return {arm: total * share for arm, share in probabilities.items()}
