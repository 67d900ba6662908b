"""Effects and their intervals, one row below the other on one axis, with the same in numbers."""

from __future__ import annotations

from collections.abc import Sequence

from foldaway.effects import Effect, Effects
from foldaway.effects.effect import has_anytime, margins_of
from foldaway.effects.numbers import interval_text, signed, typeset
from foldaway.report.drawing.figures import Axis, axis_over, axis_row, interval_row, key_line
from foldaway.report.drawing.markup import Html, html, named, tag
from foldaway.report.page.document import details
from foldaway.table import number, places_for


def forest(effects: Effects, rows: Sequence[Effect], labels: Sequence[Html], most: int | None = None) -> Html:
    """A row for each effect, with its label; beyond the first ``most``, those that follow are one click away.

    These have an axis of their own: they are the least precise, and would leave the first no room.
    """
    places = places_for(row.std_error for row in rows)
    pairs = list(zip(rows, labels, strict=True))
    more = pairs[most:] if most is not None else []
    return tag(
        "figure",
        tag("figcaption", _caption(effects, rows)),
        _legend(rows),
        _drawn(effects, pairs[:most], places),
        details(f"{len(more):,} more", _drawn(effects, more, places)) if more else None,
    )


def _drawn(effects: Effects, pairs: Sequence[tuple[Effect, Html]], places: int | None) -> Html:
    """The rows on one axis."""
    axis = axis_over(
        value
        for row, _ in pairs
        for value in (
            *(row.estimate, row.ci_lower, row.ci_upper, row.anytime_ci_lower, row.anytime_ci_upper),
            *margins_of(row),
        )
    )
    items = [_item(effects, axis, row, label, places) for row, label in pairs]
    ends = tag("li", tag("span", class_="label"), axis_row(axis), tag("span", class_="figures"), class_="ends")
    return tag("ul", items, ends, class_="rows")


def _caption(effects: Effects, rows: Sequence[Effect]) -> Html:
    thin = ", the thin line the interval for any number of looks." if any(map(has_anytime, rows)) else "."
    bar = f"the bar its {100 * effects.confidence:g}\u202f% interval for a single look{thin}"
    return html("Effect against ", named(rows[0].control), f": the dot is the estimate, {bar}")


def _legend(rows: Sequence[Effect]) -> Html | None:
    """What the broken lines are; nothing where there is only zero."""
    margins = dict.fromkeys(abs(margin) for row in rows for margin in margins_of(row))
    if not margins:
        return None
    shown = ", ".join(typeset(number(margin, 3)) for margin in margins)
    said = f"The margin: {shown}" if len(margins) == 1 else f"The margins: {shown}"
    keys = [tag("li", key_line("zero"), "No effect"), tag("li", key_line("margin"), said)]
    return tag("ul", keys, class_="legend", aria_label="Lines")


def _item(effects: Effects, axis: Axis, row: Effect, label: Html, places: int | None) -> Html:
    within = f", {row.segment}" if row.segment else ""
    drawn = interval_row(
        axis,
        row.estimate,
        (row.ci_lower, row.ci_upper),
        (row.anytime_ci_lower, row.anytime_ci_upper),
        title=f"{row.arm} against {row.control}, {effects.heading(row.outcome)}{within}, {row.estimator}",
        description=_described(effects, row, places),
        margins=margins_of(row),
    )
    return tag("li", tag("span", label, class_="label"), drawn, tag("span", _figures(row, places), class_="figures"))


def _described(effects: Effects, row: Effect, places: int | None) -> str:
    return (
        f"effect {typeset(number(row.estimate, places=places))}, {100 * effects.confidence:g}\u202f% interval "
        f"{typeset(interval_text(row.ci_lower, row.ci_upper, places))}, for any number of looks "
        f"{typeset(interval_text(row.anytime_ci_lower, row.anytime_ci_upper, places))}"
    )


def _figures(row: Effect, places: int | None) -> Html:
    effect = tag("b", typeset(signed(number(row.estimate, places=places))))
    return html(effect, " ", tag("span", typeset(interval_text(row.ci_lower, row.ci_upper, places))))
