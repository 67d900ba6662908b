"""Numbers for a person: intervals, reaches, p-values, shares."""

from __future__ import annotations

import math

from foldaway.table import number


def interval_text(lower: float, upper: float, places: int | None = None) -> str:
    """An interval for a person.

    Example:
        >>> interval_text(-0.123456, 2.5), interval_text(-0.123456, 2.5, places=2)
        ('[-0.1235, 2.500]', '[-0.12, 2.50]')
    """
    if not (math.isfinite(lower) and math.isfinite(upper)):
        return "-"
    return f"[{number(lower, places=places)}, {number(upper, places=places)}]"


def reach_text(lower: float, upper: float, places: int | None = None) -> str:
    """How far an interval reaches to each side of its middle.

    Example:
        >>> reach_text(0.5, 2.5, places=1)
        '±1.0'
    """
    reach = (upper - lower) / 2
    return f"±{number(reach, places=places)}" if math.isfinite(reach) else "-"


def p_text(p: float | None) -> str:
    """A p-value for a person.

    Example:
        >>> p_text(1e-9), p_text(0.03456)
        ('<0.001', '0.035')
    """
    if p is None or not math.isfinite(p):
        return "-"
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def percent_text(share: float) -> str:
    """A share for a person, to three digits.

    Example:
        >>> percent_text(0.02143), percent_text(-1.5), percent_text(1e9)
        ('+2.14 %', '-150 %', '+1e+11 %')
    """
    percent = 100 * share
    if not math.isfinite(percent):
        return "-"
    if abs(percent) >= 99_999:
        return f"{percent:+.0e} %"
    places = 2 if abs(percent) < 9.995 else 1 if abs(percent) < 99.95 else 0
    return f"{round(percent, places) + 0.0:+,.{places}f} %"  # adding zero takes the minus off a zero
