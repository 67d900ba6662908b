"""Numbers for a person: intervals, reaches, p-values, and the effect as a share of the control's level."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial
from textwrap import fill

from foldaway.effects.effect import Effect, defined
from foldaway.table import ABSENT, number


def interval_text(
    lower: float | None, upper: float | None, places: int | None = None, *, text: Callable[[float | None], str] = number
) -> str:
    """An interval for a person; one that reaches to infinity has one end.

    Example:
        >>> interval_text(-0.123456, 2.5), interval_text(-0.123456, 2.5, places=2)
        ('[-0.1235, 2.500]', '[-0.12, 2.50]')
        >>> interval_text(-math.inf, 0.002), interval_text(0.5, math.inf, places=2)
        ('≤ 0.002000', '≥ 0.50')
    """
    text = text if places is None else partial(number, places=places)
    if lower == -math.inf and defined(upper) is not None:
        return f"≤ {text(upper)}"
    if upper == math.inf and defined(lower) is not None:
        return f"≥ {text(lower)}"
    if defined(lower) is None or defined(upper) is None:
        return ABSENT
    return f"[{text(lower)}, {text(upper)}]"


def reach_text(lower: float | None, upper: float | None, places: int | None = None) -> str:
    """How far an interval reaches to each side of its middle; where it ends, if it has one end.

    Example:
        >>> reach_text(0.5, 2.5, places=1), reach_text(0.5, math.inf, places=1)
        ('±1.0', '≥ 0.5')
    """
    if defined(lower) is None or defined(upper) is None:
        return interval_text(lower, upper, places)
    assert lower is not None
    assert upper is not None
    return f"±{number((upper - lower) / 2, places=places)}"


def p_text(p: float | None) -> str:
    """A p-value for a person.

    Example:
        >>> p_text(1e-9), p_text(0.03456)
        ('<0.001', '0.035')
    """
    if p is None or defined(p) is None:
        return ABSENT
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def p_relation(p: float) -> str:
    """A p-value after the letter p, in a sentence; one that was rounded to one digit has no more.

    Example:
        >>> p_relation(0.0312), p_relation(1e-9), p_relation(0.5)
        ('= 0.031', 'below 0.001', '= 0.5')
    """
    text = f"{p:g}" if float(f"{p:.0e}") == p >= 0.001 else p_text(p)
    return text.replace("<", "below ") if "<" in text else f"= {text}"


def percent_text(share: float | None) -> str:
    """A share for a person, to three digits.

    Example:
        >>> percent_text(0.02143), percent_text(-1.5), percent_text(1e9)
        ('+2.14 %', '-150 %', '+1e+11 %')
    """
    percent = None if share is None else defined(100 * share)
    if percent is None:
        return ABSENT
    if abs(percent) >= 99_999:
        return f"{percent:+.0e} %"
    places = 2 if abs(percent) < 9.995 else 1 if abs(percent) < 99.95 else 0
    return f"{round(percent, places) + 0.0:+,.{places}f} %"  # adding zero takes the minus off a zero


def relative_tells(row: Effect) -> bool:
    """Whether the share is one to show: those of a level below zero, or within noise of it, mislead.

    The dashboard has the same rule.
    """
    if row.control_level is None or row.relative is None or row.relative_std_error is None:
        return False
    return row.control_level > 0 and row.relative_std_error < 0.5 * max(1.0, abs(row.relative))


def relative_reason(row: Effect) -> str | None:
    """Why no share is shown, in a sentence."""
    if row.relative_why is not None or relative_tells(row):
        return row.relative_why
    return "No relative effect is shown if the control's level is not clearly above zero."


def relative_text(row: Effect) -> str:
    """The share for a person, or a dash."""
    return percent_text(row.relative) if relative_tells(row) else ABSENT


def relative_interval_text(row: Effect) -> str:
    """Its interval for a person, or a dash."""
    if not relative_tells(row):
        return ABSENT
    lower, upper = percent_text(row.relative_ci_lower), percent_text(row.relative_ci_upper)
    if ABSENT in (lower, upper):
        return f"≤ {upper}" if lower == ABSENT else f"≥ {lower}"
    return f"{lower} to {upper}"


_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def typeset(text: str) -> str:
    """A number as a printer would set it: a true minus, powers of ten, a percent sign that keeps close.

    Example:
        >>> typeset("-0.5"), typeset("1.2e-09"), typeset("+5.04 %")
        ('−0.5', '1.2\u202f×\u202f10⁻⁹', '+5.04\u202f%')
    """
    text = re.sub(r"e([+-])0*(\d+)", _power, text)
    return re.sub(r"(?<!\w)-(?=\d)", "−", text).replace(" %", "\u202f%")


def _power(match: re.Match[str]) -> str:
    exponent = match[1].replace("+", "") + match[2]
    return "\u202f×\u202f10" + exponent.translate(_SUPERSCRIPT)


def signed(text: str) -> str:
    """A number that is a difference: with its sign, also where that is a plus.

    Example:
        >>> signed("0.5"), signed("-0.5"), signed("0.00"), signed("–")
        ('+0.5', '-0.5', '0.00', '–')
    """
    return text if text.startswith(("-", "+")) or not re.search("[1-9]", text) else f"+{text}"


def bytes_text(size: int) -> str:
    """A size for a person.

    Example:
        >>> bytes_text(900), bytes_text(4955), bytes_text(12_345_678)
        ('900 bytes', '5.0 kB', '12.3 MB')
    """
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size:,} bytes"


def in_lines(text: str, indent: str = "", width: int = 80) -> str:
    """The text in lines that part no number from its percent sign.

    Args:
        text: A sentence or more.
        indent: What stands before every line but the first.
        width: The most characters of a line.

    Example:
        >>> print(in_lines("The chance is 80 % or more.", width=16))
        The chance is
        80 % or more.
    """
    return fill(text.replace(" %", "\u00a0%"), width, subsequent_indent=indent).replace("\u00a0", " ")
