"""An effect: one estimate."""

from __future__ import annotations

import msgspec


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """One estimate of the effect of an arm, against the control, on an outcome.

    A number that cannot be told is None. Where that is the error, the row is not ``reliable`` and ``why`` has the
    reason; ``relative_why`` and ``anytime_why`` say why there is no relative effect or no any-time interval.

    ``relative`` is the effect as a share of the control's level, its interval by Fieller's method, or by the delta
    method in rows that come from moments. The ``anytime`` interval and p-value stay valid however often one looks
    (Waudby-Smith et al. 2024). Rows of the bootstrap also have percentile intervals, the p-value that inverts them, and
    the number of replicates behind them.
    """

    outcome: str
    arm: str
    control: str
    estimator: str
    se_kind: str
    n: int
    n_arm: int
    n_control: int
    estimate: float | None
    std_error: float | None
    statistic: float | None
    df: float | None
    p_value: float | None
    p_adjusted: float | None
    ci_lower: float | None
    ci_upper: float | None
    control_level: float | None
    relative: float | None
    relative_std_error: float | None
    relative_ci_lower: float | None
    relative_ci_upper: float | None
    anytime_ci_lower: float | None
    anytime_ci_upper: float | None
    anytime_p_value: float | None = None
    reliable: bool = True
    why: str | None = None
    relative_why: str | None = None
    anytime_why: str | None = None
    percentile_ci_lower: float | None = None
    percentile_ci_upper: float | None = None
    percentile_p_value: float | None = None
    relative_percentile_ci_lower: float | None = None
    relative_percentile_ci_upper: float | None = None
    replicates: int | None = None
    replicates_left_out: int | None = None
