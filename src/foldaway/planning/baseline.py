"""What is known of an outcome before the trial: its level and how it varies, said or read from an earlier trial."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Self, TypeAlias

import msgspec

from foldaway.effects.effect import Effect
from foldaway.effects.findings import Findings
from foldaway.effects.headline import comparisons, headline
from foldaway.errors import EstimateError, instead_of
from foldaway.inference.power import design_effect, ratio_deviation
from foldaway.plan.vocabulary import ERRORS, ESTIMATORS, TOTAL

# Up to rounding, a share's error follows from its level.
_ROUNDING = 1e-6


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an outcome without the treatment.

    Attributes:
        level: Its mean per record, its share of ones, or its ratio.
        sd: The standard deviation of a record; left out for a share, whose level tells it.
        correlation: Of two records of one unit (the intra-unit or intra-cluster correlation).
        explained: The share of the variance that covariates explain (R²).
        design_effect: How many times the variance is that of independent records, if it is known as such; it takes the
            place of `correlation`.

    Example:
        >>> Baseline(level=0.1).deviation(), Baseline(level=12.0, sd=30.0).deviation()
        (0.3, 30.0)
    """

    level: float
    sd: float | None = None
    correlation: float = 0.0
    explained: float = 0.0
    design_effect: float | None = None

    def __post_init__(self) -> None:
        if not math.isfinite(self.level):
            raise EstimateError("the level of a baseline must be a finite number.")
        if self.sd is None and not 0 < self.level < 1:
            raise EstimateError(
                "a baseline without `sd` is a share, and its level must lie between 0 and 1; for a mean or a ratio, "
                "give `sd`."
            )
        if self.sd is not None and not 0 < self.sd < math.inf:
            raise EstimateError("`sd`, the standard deviation of a record, must be above 0.")
        if not -1 <= self.correlation <= 1:
            raise EstimateError("`correlation`, of two records of one unit, must lie between -1 and 1.")
        if not 0 <= self.explained < 1:
            raise EstimateError("`explained`, the share that covariates explain, must be at least 0 and below 1.")
        if self.design_effect is not None and not 0 < self.design_effect < math.inf:
            raise EstimateError("`design_effect` must be above 0.")

    @classmethod
    def ratio(
        cls,
        numerator: tuple[float, float],
        denominator: tuple[float, float],
        correlation: float,
        *,
        explained: float = 0.0,
    ) -> Self:
        """Of a ratio such as clicks per view, from the two sums of each unit; every unit is then one record.

        Args:
            numerator: The mean and the standard deviation of the sum above.
            denominator: Those of the sum below.
            correlation: Of the two.
            explained: As ever.

        Example:
            >>> Baseline.ratio((1.0, 1.5), (4.0, 3.0), 0.8)
            Baseline(level=0.25, sd=0.25, correlation=0.0, explained=0.0, design_effect=None)
        """
        level, sd = ratio_deviation(numerator, denominator, correlation)
        return cls(level=level, sd=round(sd, 12), explained=explained)

    def deviation(self, effect: float = 0.0) -> float:
        """The standard deviation of a record under an effect: that of a share moves with its level."""
        if self.sd is not None:
            return self.sd
        share = self.level + effect
        return math.sqrt(share * (1 - share)) if 0 < share < 1 else 0.0

    def inflation(self, records_per_unit: float, size_cv: float) -> float:
        """The design effect."""
        if self.design_effect is not None:
            return self.design_effect
        return design_effect(self.correlation, records_per_unit, size_cv)


Known: TypeAlias = Baseline | Mapping[str, float]
"""A baseline, or a mapping with its settings."""


def baseline_of(known: Known) -> Baseline:
    """A baseline, from a mapping with its settings if it is one.

    Example:
        >>> baseline_of({"level": 12.0, "sd": 30.0}).sd
        30.0
    """
    if isinstance(known, Baseline):
        return known
    settings = ", ".join(Baseline.__struct_fields__)
    wrong = EstimateError(f"a baseline has a `level`, and all its settings are numbers: {settings}.")
    with instead_of(TypeError, wrong):
        return Baseline(**known)


def baselines_of(effects: Findings) -> dict[str, Baseline]:
    """The baselines that an earlier trial, or a sample folded under its plan, shows.

    The standard deviation, and what covariates explain of it, come from errors that take records as independent; the
    design effect is what the leading estimator's variance is next to that, if it allows for several records of a unit.

    Raises:
        EstimateError: No outcome has an error yet.
    """
    found: dict[str, list[Baseline]] = {}
    shares = {outcome.name for outcome in effects.plan.outcomes if outcome.level == "share"}
    for each in comparisons(effects):
        if (baseline := _baseline(each.rows, each.lead, share=each.outcome in shares)) is not None:
            found.setdefault(each.outcome, []).append(baseline)
    if not found:
        raise EstimateError(
            "no outcome has a standard error that a plan could be made from: too few records have come, or the plan "
            "asks for totals alone."
        )
    return {outcome: _pooled(of_arms) for outcome, of_arms in found.items()}


def _baseline(rows: Sequence[Effect], lead: Effect, *, share: bool) -> Baseline | None:
    """From one arm's rows; none if these have no error, or are totals, which grow with the trial."""
    plain = next((row for row in headline(rows) if row.estimator in ("difference", lead.estimator)), lead)
    if plain.estimator == TOTAL or not plain.reliable or not plain.std_error or plain.control_level is None:
        return None
    adjusts = lead.std_error and ESTIMATORS[lead.estimator].adjusts
    adjusted = lead if adjusts else plain
    # If records are independent: their own variance, and what is left of it.
    whole, rest = (_independent(rows, each) for each in (plain, adjusted))
    variance, level, n, m = _variance(whole), plain.control_level, plain.n_arm or 0, plain.n_control or 0
    other = level + (plain.estimate or 0.0)
    if not share and 0 < level < 1 and 0 < other < 1 and min(n, m) > 1:  # a mean of zeros and ones is one as well
        of_shares = other * (1 - other) / (n - 1) + level * (1 - level) / (m - 1)
        share = abs(variance - of_shares) <= _ROUNDING * of_shares
    return Baseline(
        level=level,
        sd=None if share and 0 < level < 1 else math.sqrt(variance / (1 / n + 1 / m)),
        explained=min(max(0.0, 1 - _variance(rest) / variance), 1 - 1e-9),
        design_effect=None if rest is adjusted else _variance(adjusted) / _variance(rest),
    )


def _independent(rows: Sequence[Effect], row: Effect) -> Effect:
    """The same estimate with the best error that takes records as independent; itself, if there is none."""
    same = [each for each in rows if each.estimator == row.estimator and each.std_error]
    alone = [each for each in same if not ERRORS[each.se_kind].clusters]
    return min(alone, key=lambda each: ERRORS[each.se_kind].rank, default=row)


def _variance(row: Effect) -> float:
    assert row.std_error is not None
    return row.std_error**2


def _pooled(arms: Sequence[Baseline]) -> Baseline:
    """The mean over arms; what an arm explains or multiplies is weighed like any other."""
    count = len(arms)
    sds = [each.sd for each in arms if each.sd is not None]
    effects = [each.design_effect for each in arms if each.design_effect is not None]
    return Baseline(
        level=arms[0].level,
        sd=math.sqrt(sum(sd**2 for sd in sds) / len(sds)) if len(sds) == count else None,
        explained=sum(each.explained for each in arms) / count,
        design_effect=sum(effects) / len(effects) if effects else None,
    )
