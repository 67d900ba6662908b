"""The sample-ratio check: do the arms' counts fit the plan's probabilities?"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

# Customary for this check, which runs with every result and should not cry wolf (Fabijan et al., KDD 2019).
SUSPICIOUS = 0.001


class SampleRatio(msgspec.Struct, frozen=True):
    """Observed counts, those expected under the plan, and the chi-square test between them."""

    counted: str
    observed: dict[str, int]
    expected: dict[str, float]
    statistic: float
    p_value: float

    @property
    def ok(self) -> bool:
        """Whether the counts fit."""
        return self.p_value >= SUSPICIOUS


def sample_ratio(observed: Mapping[str, int], probabilities: Mapping[str, float], counted: str) -> SampleRatio:
    """Pearson's chi-square test of the arms' counts.

    Example:
        >>> check = sample_ratio({"a": 5_000, "b": 5_400}, {"a": 0.5, "b": 0.5}, "records")
        >>> round(check.statistic, 2), check.ok
        (15.38, False)
    """
    from scipy.special import chdtrc

    total = sum(observed.values())
    expected = {arm: total * share for arm, share in probabilities.items()}
    statistic = sum((observed[arm] - expected[arm]) ** 2 / expected[arm] for arm in expected) if total else 0.0
    return SampleRatio(counted, dict(observed), expected, statistic, float(chdtrc(len(expected) - 1, statistic)))
