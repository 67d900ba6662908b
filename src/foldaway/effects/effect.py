"""An effect: one estimate."""

from __future__ import annotations

import msgspec


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """One estimate of the effect of an arm, against the control, on an outcome.

    ``relative`` is the effect as a share of the control's level, its interval by the delta method. The
    ``anytime`` interval stays valid however often one looks (Waudby-Smith et al. 2024). Rows of the bootstrap also have
    percentile intervals, the p-value that inverts them, and the number of replicates behind them.
    """

    outcome: str
    arm: str
    control: str
    estimator: str
    se_kind: str
    n: int
    n_arm: int
    n_control: int
    estimate: float
    std_error: float
    statistic: float
    df: float
    p_value: float
    p_adjusted: float | None
    ci_lower: float
    ci_upper: float
    control_level: float
    relative: float
    relative_std_error: float
    relative_ci_lower: float
    relative_ci_upper: float
    anytime_ci_lower: float
    anytime_ci_upper: float
    percentile_ci_lower: float | None = None
    percentile_ci_upper: float | None = None
    percentile_p_value: float | None = None
    relative_percentile_ci_lower: float | None = None
    relative_percentile_ci_upper: float | None = None
    replicates: int | None = None
    replicates_left_out: int | None = None
