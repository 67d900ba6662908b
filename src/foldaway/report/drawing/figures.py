"""Figures as SVG: widths in per cent, heights in pixels, so that they fit any screen and their text keeps its size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from foldaway.effects.numbers import typeset
from foldaway.report.drawing.axis import Axis
from foldaway.report.drawing.markup import Child, Html, html, tag

_HEIGHT = 30
_MIDDLE = _HEIGHT / 2

# Shapes tell arms apart where colours cannot be seen; each is drawn around 0, 0.
_SHAPES = (
    "M-5,0a5,5 0 1,0 10,0a5,5 0 1,0 -10,0z",
    "M-4.5,-4.5h9v9h-9z",
    "M0,-5.5l5.5,9.5h-11z",
    "M0,-6l6,6l-6,6l-6,-6z",
    "M0,5.5l5.5,-9.5h-11z",
)
SHAPES = len(_SHAPES)


class Range(NamedTuple):
    """From one number to another."""

    low: float
    high: float

    @property
    def exists(self) -> bool:
        """Whether both ends are numbers."""
        return math.isfinite(self.low) and math.isfinite(self.high)


def interval_row(axis: Axis, estimate: float, inner: Range, outer: Range, *, title: str, told: str) -> Html:
    """An estimate as a dot, its interval as a bar, its wider one as a line with ends, and zero as a broken line."""
    parts = [_upright(axis, 0.0, "zero")]
    if outer.exists:
        parts += [_level(axis, outer, "outer"), *(_upright(axis, end, "outer", reach=5) for end in outer)]
    if inner.exists:
        parts.append(_level(axis, inner, "inner"))
    if math.isfinite(estimate):
        parts.append(_mark(axis, estimate, 0))
    return picture(parts, title=title, told=told)


def box_row(axis: Axis, quantiles: Sequence[float], *, title: str, told: str) -> Html:
    """Five quantiles as a box: whiskers to the outer two, the box between the next, a line at the middle."""
    first, lower, middle, upper, last = quantiles
    parts = [
        _upright(axis, 0.0, "zero"),
        _level(axis, Range(first, last), "outer"),
        *(_upright(axis, end, "outer", reach=5) for end in (first, last)),
        _level(axis, Range(lower, upper), "box"),
        _upright(axis, middle, "middle", reach=8),
    ]
    return picture(parts, title=title, told=told)


def mark_row(axis: Axis, marks: Sequence[tuple[int, float]], guides: Iterable[float], *, title: str, told: str) -> Html:
    """Several marks of different shapes on one line, with guides to either side of zero."""
    parts = [_upright(axis, 0.0, "zero"), *(_upright(axis, guide, "guide") for guide in guides)]
    parts += [_mark(axis, value, shape) for shape, value in marks if not math.isnan(value)]
    return picture(parts, title=title, told=told)


def axis_row(axis: Axis, *, percent: bool = False) -> Html:
    """The axis with its numbers. It adds nothing for those who listen: every number is also in the text."""
    labels = axis.labels()
    baseline = tag("line", x1="0%", x2="100%", y1=0.5, y2=0.5, class_="base")
    ticks = [
        html(
            tag("line", x1=f"{axis.place(tick)}%", x2=f"{axis.place(tick)}%", y1=0, y2=5, class_="base"),
            tag("text", typeset(label), x=f"{axis.place(tick)}%", y=19),
        )
        for tick, label in labels.items()
    ]
    return tag("svg", baseline, ticks, class_="axis", width="100%", height=24, aria_hidden="true")


def key_mark(shape: int) -> Html:
    """A shape alone, for a legend."""
    drawn = tag("path", d=_SHAPES[shape % SHAPES], transform="translate(8 8)", class_=f"mark m{shape % SHAPES}")
    return tag("svg", drawn, class_="key", width=16, height=16, aria_hidden="true")


def picture(parts: Iterable[Child], *, title: str, told: str) -> Html:
    """An SVG that can be read aloud."""
    return tag(
        "svg",
        tag("title", title),
        tag("desc", told),
        parts,
        role="img",
        aria_label=f"{title}: {told}",
        class_="plot",
        width="100%",
        height=_HEIGHT,
    )


def _level(axis: Axis, across: Range, kind: str) -> Html:
    ends = {"x1": f"{axis.place(across.low)}%", "x2": f"{axis.place(across.high)}%"}
    return tag("line", y1=_MIDDLE, y2=_MIDDLE, class_=kind, **ends)


def _upright(axis: Axis, value: float, kind: str, reach: float = _MIDDLE) -> Html:
    x = f"{axis.place(value)}%"
    return tag("line", x1=x, x2=x, y1=_MIDDLE - reach, y2=_MIDDLE + reach, class_=kind)


def _mark(axis: Axis, value: float, shape: int) -> Html:
    # Only a nested picture can be placed in per cent and yet hold a path in pixels.
    path = tag("path", d=_SHAPES[shape % SHAPES], class_=f"mark m{shape % SHAPES}")
    return tag("svg", path, x=f"{axis.place(value)}%", y=_MIDDLE, overflow="visible")
