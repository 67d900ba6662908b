"""Rows of cells as text or HTML; knows nothing of what they mean."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from itertools import zip_longest
from textwrap import wrap
from typing import Any

_LETTERS = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))

ABSENT = "–"
"""What stands where there is no number."""


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1, width: int | None = None) -> str:
    """A plain table; the first ``left`` columns are set left, the others right.

    With a ``width``, cells are broken into lines so that the table fits: the last column's where the others leave off.

    Example:
        >>> print(text_table(["arm", "n"], [["control", "1,002"], ["treatment", "998"]]))
        arm            n
        ─────────  ─────
        control    1,002
        treatment    998
        >>> print(text_table(["column", "detail"], [["country", "levels de, fr, it, pl, us"]], left=2, width=28))
        column   detail
        ───────  ──────────────────
        country  levels de, fr, it,
                 pl, us
    """
    cells = [list(header), *[list(row) for row in rows]]
    if width is not None:
        cells = _broken(cells, width)
    widths = [max(len(row[c]) for row in cells) for c in range(len(header))]
    lines = ["  ".join(_set(row, widths, left)).rstrip() for row in cells]
    lines.insert(1, "  ".join("─" * width for width in widths))
    return "\n".join(lines)


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """The same as HTML, for notebooks.

    Example:
        >>> html_table(["a<b"], [["1"]])
        '<table><thead><tr><th>a&lt;b</th></tr></thead><tbody><tr><td>1</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def number(value: Any, digits: int = 4, *, places: int | None = None) -> str:
    """A number for a person: significant digits or decimal places, thousands separated, an exponent only if it must.

    Example:
        >>> [number(v) for v in (1234567, 0.123456, 1e-9, float("nan"), -12.3456)]
        ['1,234,567', '0.1235', '1e-09', '–', '-12.35']
        >>> [number(v, places=2) for v in (1234.567, -0.001, 3.0)]
        ['1,234.57', '0.00', '3.00']
    """
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ABSENT
    if isinstance(value, int):
        return f"{value:,}"
    if places is not None and abs(value) < 1e9:
        return f"{round(value, places) + 0.0:,.{places}f}"  # adding zero takes the minus off a zero
    if value == 0 or 1e-4 <= abs(value) < 1e6:
        places = digits if value == 0 else max(0, digits - 1 - math.floor(math.log10(abs(value))))
        return f"{value + 0.0:,.{min(places, 8)}f}"
    return f"{value:.{digits}g}"


def compact(value: float | None, digits: int = 4) -> str:
    """A number where there is little room: thousands, millions and more by a letter.

    Example:
        >>> [compact(v) for v in (102_975_000.0, -58_333.3, 12.3456, None)]
        ['103.0M', '-58.33k', '12.35', '–']
    """
    if value is None or not 1e4 <= abs(value) < 1e15:
        return number(value, digits)
    letter, unit = next((letter, unit) for letter, unit in _LETTERS if abs(value) >= unit)
    return f"{number(value / unit, digits)}{letter}"


def places_for(errors: Iterable[float | None]) -> int | None:
    """The decimal places that show two digits of the smallest of some errors; None if that takes too many.

    Example:
        >>> places_for([0.0316, 2.0]), places_for([1234.0]), places_for([0.0, 1e-15])
        (3, 0, None)
    """
    smallest = min((error for error in errors if error is not None and error > 0), default=0.0)
    if not 1e-6 <= smallest < math.inf:
        return None
    return max(0, 1 - math.floor(math.log10(smallest)))


def _broken(cells: list[list[str]], width: int) -> list[list[str]]:
    """Rows of cells in as many lines as it takes; no column but the last takes more than a third of the width."""
    rooms = [min(max(len(row[c]) for row in cells), width // 3) for c in range(len(cells[0]) - 1)]
    rooms.append(max(width // 3, width - sum(rooms) - 2 * len(rooms)))
    broken = [[wrap(cell, room) or [""] for cell, room in zip(row, rooms, strict=True)] for row in cells]
    return [list(line) for row in broken for line in zip_longest(*row, fillvalue="")]


def _set(row: Sequence[str], widths: Sequence[int], left: int) -> list[str]:
    return [
        cell.ljust(width) if c < left else cell.rjust(width)
        for c, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
