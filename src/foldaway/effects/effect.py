"""An effect: one estimate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from foldaway.inference.anytime import Anytime
from foldaway.inference.claim import Claim
from foldaway.inference.levels import ArmEffect
from foldaway.plan import Outcome, Plan


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """One estimate of the effect of an arm, against the control, on an outcome.

    A number that cannot be told is None, never NaN, and a sentence says why: ``why`` for the error and the interval
    of the effect, without which a row is not ``reliable``; ``relative_why`` and ``anytime_why`` for theirs. ``note``
    says what to know before relying on a row whose numbers are all there.

    ``relative`` is the effect as a share of the control's level, its interval by Fieller's method (in rows of the
    bootstrap, by the replicates' spread); where that level cannot be told from zero there is none. The ``anytime``
    interval stays valid however often one looks (Waudby-Smith et al. 2024). Rows of the bootstrap also have percentile
    intervals, the p-value that inverts them, and the number of replicates behind them. Rows of shares have an odds
    ratio, and intervals of ratios on the log scale; rows of other outcomes have none, without a reason. ``df`` is
    infinite where the normal distribution takes the place of Student's t. Rows of a release have its ``epsilon`` and
    ``delta``, what it ``protects``, and by ``widening`` how many times as wide the interval is as it would be without
    noise, estimated; None if it is mostly noise. Rows within a segment have its level in ``segment``; only these may
    lack their counts, where a level is withheld from others. Rows of the compliers' effect have F of the
    ``first_stage``: how strongly the arms differ in what was received.

    ``alternative`` and ``threshold`` say what the p-values test: that the effect is not zero, ``"two-sided"``; that it
    is ``"greater"`` or ``"less"`` than the threshold, with intervals that have one end and reach to infinity on the
    other side; or that it is ``"within"`` the threshold of zero, with intervals of twice the error rate, as two
    one-sided tests have them. ``p_against`` belongs to the opposite finding, where there is one to make: that a
    guardrail is harmed, or that an effect is larger than the margin. ``p_adjusted`` and ``anytime_p_adjusted`` allow
    for several comparisons by the plan's `correction`; None where there is nothing to allow for.
    """

    outcome: str
    arm: str
    control: str
    estimator: str
    se_kind: str
    n: int | None
    n_arm: int | None
    n_control: int | None
    reliable: bool = True
    why: str | None = None
    note: str | None = None
    estimate: float | None = None
    std_error: float | None = None
    statistic: float | None = None
    df: float | None = None
    alternative: str = "two-sided"
    threshold: float = 0.0
    p_value: float | None = None
    p_adjusted: float | None = None
    p_against: float | None = None
    ci_lower: float | None = None
    ci_upper: float | None = None
    control_level: float | None = None
    relative: float | None = None
    relative_std_error: float | None = None
    relative_ci_lower: float | None = None
    relative_ci_upper: float | None = None
    relative_why: str | None = None
    odds_ratio: float | None = None
    odds_ratio_ci_lower: float | None = None
    odds_ratio_ci_upper: float | None = None
    odds_ratio_why: str | None = None
    anytime_ci_lower: float | None = None
    anytime_ci_upper: float | None = None
    anytime_p_value: float | None = None
    anytime_p_adjusted: float | None = None
    anytime_p_against: float | None = None
    anytime_why: str | None = None
    percentile_ci_lower: float | None = None
    percentile_ci_upper: float | None = None
    percentile_p_value: float | None = None
    relative_percentile_ci_lower: float | None = None
    relative_percentile_ci_upper: float | None = None
    replicates: int | None = None
    replicates_left_out: int | None = None
    epsilon: float | None = None
    delta: float | None = None
    protects: str | None = None
    widening: float | None = None
    segment: str | None = None
    first_stage: float | None = None

    def without_numbers(self, why: str) -> Effect:
        """The same row, of which nothing but its counts is told."""
        kept = ("outcome", "arm", "control", "estimator", "se_kind", "n", "n_arm", "n_control")
        return Effect(**{name: getattr(self, name) for name in kept}, reliable=False, why=sentence(why))

    @property
    def level(self) -> float | None:
        """The arm's own level: the control's, and the effect on top of it."""
        return None if self.estimate is None or self.control_level is None else self.control_level + self.estimate


def defined(number: float | None) -> float | None:
    """The number as a row has it: None where it is none, such as NaN."""
    return number if number is not None and math.isfinite(number) else None


def end(number: float | None) -> float | None:
    """The end of an interval as a row has it: one that reaches to infinity says so."""
    return None if number is None or math.isnan(number) else number


def sentence(reason: str) -> str | None:
    """A reason as a row gives it to people; None if there is none.

    Example:
        >>> sentence("an arm has no records yet.")
        'An arm has no records yet.'
    """
    return reason[:1].upper() + reason[1:] or None


def row_of(
    plan: Plan,
    outcome: Outcome,
    claim: Claim,
    arm: int,
    by: tuple[str, str],
    counts: Sequence[int],
    anytime: Anytime,
    point: ArmEffect,
    **more: Any,
) -> Effect:
    """A row: who is compared, by which estimator and kind of error, what is tested and found, once and at any time."""
    reasons = {
        "why": sentence(point.why),
        "relative_why": sentence(point.relative_why or point.why),
        "odds_ratio_why": sentence(point.odds_ratio_why or point.why) if outcome.level == "share" else None,
    }
    return Effect(
        outcome=outcome.name,
        arm=list(plan.arms)[arm],
        control=plan.control,
        estimator=by[0],
        se_kind=by[1],
        n=sum(counts),
        n_arm=counts[arm],
        n_control=counts[0],
        alternative=claim.alternative,
        threshold=claim.threshold,
        anytime_ci_lower=end(anytime.lower),
        anytime_ci_upper=end(anytime.upper),
        anytime_p_value=anytime.p_value,
        anytime_p_against=anytime.p_against,
        anytime_why=sentence(anytime.why),
        **{**point._asdict(), **reasons, **more},
    )


def has_anytime(row: Effect) -> bool:
    """Whether a row has an interval for any number of looks."""
    return row.anytime_ci_lower is not None or row.anytime_ci_upper is not None


def margins_of(row: Effect) -> list[float]:
    """Where the margins of a row's question lie."""
    return [side * row.threshold for side in ((-1, 1) if row.alternative == "within" else (1,)) if row.threshold]
