"""The arms' survival curves, the tests that compare them, and the same in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from foldaway.effects import Effects
from foldaway.effects.curves import Curves, sentences
from foldaway.effects.numbers import typeset
from foldaway.plan import Survival
from foldaway.plan.outcomes.value import shortest
from foldaway.report.drawing.curves import StepCurve, key_curve, step_curves
from foldaway.report.drawing.markup import Html, html, named, tag
from foldaway.report.page.document import details, notes, table

_ROWS = 12
"""In the table, so many times at most."""


def survival(effects: Effects, shown: Curves) -> Html:
    """A picture of the curves with a legend, what the tests say, and a table one click away."""
    if shown.why is not None:
        return tag("p", f"No curves are shown: {shown.why}")
    outcome = effects.plan.outcome(shown.outcome)
    assert isinstance(outcome, Survival)
    title = f"Survival curves: {outcome.label or outcome.time}"
    keys = [tag("li", key_curve(place), named(each.arm)) for place, each in enumerate(shown.curves)]
    steps = [StepCurve(each.survival, each.lower, each.upper) for each in shown.curves]
    caption = html(
        "The share of each arm that has had no event (",
        named(outcome.event),
        ") by each time (",
        named(outcome.time),
        f"), with a {100 * effects.confidence:g}\u202f% interval for each time by itself",
    )
    return html(
        tag(
            "figure",
            tag("figcaption", caption),
            tag("ul", keys, class_="legend", aria_label="Arms"),
            step_curves(shown.times, steps, title=title, description=_described(shown)),
        ),
        notes(sentences([shown], [effects.heading(shown.outcome)])),
        details("The curves in numbers", _table(shown, title)),
    )


def _described(shown: Curves) -> str:
    ends = ", ".join(f"{each.arm} {_percent(each.survival[-1])}" for each in shown.curves)
    return f"at {shortest(shown.times[-1])}, {ends} have had no event"


def _table(shown: Curves, title: str) -> Html:
    header = ["time", *(f"{each.arm}{more}" for each in shown.curves for more in ("", ", at risk after"))]
    rows = [
        [
            typeset(shortest(shown.times[place])),
            *(
                cell
                for each in shown.curves
                for cell in (_with_band(each.survival, each.lower, each.upper, place), f"{each.at_risk[place]:,}")
            ),
        ]
        for place in _some(len(shown.times))
    ]
    return table(title, header, rows)


def _with_band(
    survival: Sequence[float], lower: Sequence[float | None], upper: Sequence[float | None], place: int
) -> str:
    ends = lower[place], upper[place]
    band = "" if None in ends else f" ({_percent(ends[0])} to {_percent(ends[1])})"
    return f"{_percent(survival[place])}{band}"


def _percent(share: float | None) -> str:
    return "–" if share is None else typeset(f"{100 * share:.1f} %")


def _some(times: int) -> list[int]:
    """Places that are evenly apart, the first and the last among them."""
    if times <= _ROWS:
        return list(range(times))
    places = [round(k * (times - 1) / (_ROWS - 1)) for k in range(_ROWS)]
    assert all(one < two for one, two in pairwise(places))
    return places
