"""The effect as a share of the control's level, where such a share tells something."""

from __future__ import annotations

from foldaway.effects.effect import Effect
from foldaway.effects.numbers import percent_text


def relative_tells(row: Effect) -> bool:
    """Whether the share is one to show: those of a level below zero, or within noise of it, mislead.

    The dashboard has the same rule.
    """
    return row.control_level > 0 and row.relative_std_error < 0.5 * max(1.0, abs(row.relative))


def relative_text(row: Effect) -> str:
    """The share for a person, or a dash."""
    return percent_text(row.relative) if relative_tells(row) else "-"


def relative_interval_text(row: Effect) -> str:
    """Its interval for a person, or a dash."""
    if not relative_tells(row):
        return "-"
    return f"{percent_text(row.relative_ci_lower)} to {percent_text(row.relative_ci_upper)}"
