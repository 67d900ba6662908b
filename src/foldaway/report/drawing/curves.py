"""Curves that go down in steps, with bands, on one pair of axes: heights in pixels, widths in per cent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from foldaway.effects.numbers import typeset
from foldaway.report.drawing.figures import Axis, picture
from foldaway.report.drawing.markup import Html, html, tag

_TOP, _HEIGHT, _BELOW = 8, 220, 26

# The part of the width that curves have, beside the numbers of the upright axis.
_LEFT, _WIDTH = 8.0, 89.0

COLOURS = 5


class StepCurve(NamedTuple):
    """A curve: its height from each time on, and its band's ends where it has one; all between 0 and 1."""

    height: Sequence[float]
    lower: Sequence[float | None]
    upper: Sequence[float | None]


def step_curves(times: Sequence[float], curves: Sequence[StepCurve], *, title: str, description: str) -> Html:
    """The curves over the same times, of which the first is at the left edge and the last at the right."""
    span = times[-1] or 1.0
    places = [round(1000 * time / span, 2) for time in times]
    drawn = [_band(places, each, k) for k, each in enumerate(curves)]
    drawn += [_line(places, each.height, k) for k, each in enumerate(curves)]
    box = tag(
        "svg",
        drawn,
        x=f"{_LEFT}%",
        y=_TOP,
        width=f"{_WIDTH}%",
        height=_HEIGHT,
        viewBox="0 0 1000 1000",
        preserveAspectRatio="none",
        overflow="visible",
    )
    levels = [_level(share) for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    uprights = [_upright(label, tick / span) for tick, label in Axis(0.0, span).labels().items()]
    height = _TOP + _HEIGHT + _BELOW
    return picture([*levels, *uprights, box], title=title, description=description, kind="curves", height=height)


def key_curve(place: int) -> Html:
    """A piece of a curve alone, for a legend."""
    drawn = tag("line", x1=0, x2=16, y1=8, y2=8, class_=f"curve c{place % COLOURS}")
    return tag("svg", drawn, class_="key", width=16, height=16, aria_hidden="true")


def _level(share: float) -> Html:
    y = _TOP + round(_HEIGHT * (1 - share), 1)
    label = tag("text", typeset(f"{100 * share:.0f} %"), x=f"{_LEFT - 0.8}%", y=y + 4, class_="level")
    return html(tag("line", x1=f"{_LEFT}%", x2=f"{_LEFT + _WIDTH}%", y1=y, y2=y, class_="base"), label)


def _upright(label: str, share: float) -> Html:
    x, y = f"{round(_LEFT + _WIDTH * share, 3)}%", _TOP + _HEIGHT
    return html(tag("line", x1=x, x2=x, y1=y, y2=y + 5, class_="base"), tag("text", typeset(label), x=x, y=y + 19))


def _line(places: Sequence[float], heights: Sequence[float], place: int) -> Html:
    path = _there(places, heights)
    return tag("path", d=f"M{path}", class_=f"curve c{place % COLOURS}", vector_effect="non-scaling-stroke")


def _band(places: Sequence[float], curve: StepCurve, place: int) -> Html | None:
    """Between the ends, which are the curve where it has none."""
    lower, upper = (
        [height if end is None else end for end, height in zip(ends, curve.height, strict=True)]
        for ends in (curve.lower, curve.upper)
    )
    if lower == upper:
        return None
    there = _there(places, upper)
    back = " ".join(reversed(_there(places, lower).split(" ")))
    return tag("path", d=f"M{there} L{back}Z", class_=f"band c{place % COLOURS}")


def _there(places: Sequence[float], heights: Sequence[float]) -> str:
    """Points of the steps from left to right."""
    levels = [round(1000 * (1 - height), 1) for height in heights]
    points = [f"{places[0]:g},{levels[0]:g}"]
    for before, x, y in zip(levels, places[1:], levels[1:], strict=False):
        points += [f"{x:g},{before:g}", f"{x:g},{y:g}"]
    return " ".join(points)
