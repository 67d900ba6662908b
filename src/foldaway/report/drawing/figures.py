"""Figures as SVG: widths in per cent, heights in pixels, so that they fit any screen and their text keeps its size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from foldaway.effects.numbers import typeset
from foldaway.report.drawing.markup import Child, Html, html, tag
from foldaway.table import number

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

# The axis leaves this much of the width free at each end, so that a label under its last mark is not cut off.
_MARGIN = 6.0

# Numbers that are closer than this cannot be told apart by division.
_NOTHING = 1e-300

_STEPS = (1, 2, 2.5, 5, 10)


class Axis(NamedTuple):
    """From the least to the largest number that it shows."""

    low: float
    high: float

    def place(self, value: float) -> float:
        """Where a number lies, in per cent of the width; the ends for what lies beyond them, the edge for infinity.

        Example:
            >>> axis = Axis(0.0, 10.0)
            >>> axis.place(0), axis.place(5), axis.place(99), axis.place(-math.inf)
            (6.0, 50.0, 94.0, 0.0)
        """
        if math.isinf(value):
            return 100.0 if value > 0 else 0.0
        # Halves, since the difference of two large numbers may be too large.
        share = (value / 2 - self.low / 2) / (self.high / 2 - self.low / 2)
        return round(_MARGIN + (100 - 2 * _MARGIN) * min(max(share, 0.0), 1.0), 3)

    def ticks(self, most: int = 6) -> list[float]:
        """At most so many round numbers within the axis, evenly apart.

        Example:
            >>> Axis(-0.13, 1.4).ticks(5)
            [0.0, 0.5, 1.0]
        """
        rough = self.high / most - self.low / most
        if not 1e-300 < rough < 1e300:
            return [self.low, self.high]
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(s for s in (base * power for base in _STEPS) if s >= rough * (1 - 1e-9))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [step * i for i in range(first, last + 1)]

    def labels(self, most: int = 6) -> dict[float, str]:
        """The ticks and what to write at them, all with as many decimals as the step needs."""
        ticks = self.ticks(most)
        step = ticks[1] - ticks[0] if len(ticks) > 1 else abs(ticks[0]) if ticks else 1.0
        if not 1e-5 < step < 1e7:
            return {tick: "0" if tick == 0 else number(float(tick), 3) for tick in ticks}
        places = next(p for p in range(8) if abs(round(step, p) - step) < 1e-6 * step)
        return {tick: number(float(tick), places=places) for tick in ticks}


def axis_over(values: Iterable[float | None], *, symmetric: bool = False) -> Axis:
    """An axis on which zero and all these numbers lie, those that do not exist left out.

    Example:
        >>> axis_over([0.5, 2.0, None]), axis_over([0.5, -2.0], symmetric=True)
        (Axis(low=0.0, high=2.0), Axis(low=-2.0, high=2.0))
        >>> axis_over([])
        Axis(low=-1.0, high=1.0)
    """
    there = [0.0, *(float(value) for value in values if value is not None and math.isfinite(value))]
    low, high = min(there), max(there)
    if symmetric:
        low, high = min(low, -high), max(high, -low)
    return Axis(low, high) if high / 2 - low / 2 > _NOTHING else Axis(-1.0, 1.0)


def interval_row(
    axis: Axis,
    estimate: float | None,
    inner: tuple[float | None, float | None],
    outer: tuple[float | None, float | None],
    *,
    title: str,
    description: str,
    margins: Iterable[float] = (),
) -> Html:
    """An estimate as a dot, its interval as a bar, its wider one as a line with ends, zero and margins as broken lines.

    What reaches to infinity reaches to the edge of the picture; an interval without both ends is not drawn.
    """
    parts = [_upright(axis, 0.0, "zero"), *(_upright(axis, margin, "margin") for margin in margins)]
    for (low, high), kind in ((outer, "outer"), (inner, "inner")):
        if low is not None and high is not None:
            ends = [end for end in (low, high) if kind == "outer" and math.isfinite(end)]
            parts += [_level(axis, low, high, kind), *(_upright(axis, end, kind, reach=5) for end in ends)]
    if estimate is not None:
        parts.append(_mark(axis, estimate, 0))
    return picture(parts, title=title, description=description)


def box_row(axis: Axis, quantiles: Sequence[float], *, title: str, description: str) -> Html:
    """Five quantiles as a box: whiskers to the outer two, the box between the next, a line at the middle."""
    first, lower, middle, upper, last = quantiles
    parts = [
        _upright(axis, 0.0, "zero"),
        _level(axis, first, last, "outer"),
        *(_upright(axis, end, "outer", reach=5) for end in (first, last)),
        _level(axis, lower, upper, "box"),
        _upright(axis, middle, "middle", reach=8),
    ]
    return picture(parts, title=title, description=description)


def mark_row(
    axis: Axis, marks: Sequence[tuple[int, float]], guides: Iterable[float], *, title: str, description: str
) -> Html:
    """Several marks of different shapes on one line, with guides to either side of zero."""
    parts = [_upright(axis, 0.0, "zero"), *(_upright(axis, guide, "guide") for guide in guides)]
    parts += [_mark(axis, value, shape) for shape, value in marks if not math.isnan(value)]
    return picture(parts, title=title, description=description)


def axis_row(axis: Axis) -> Html:
    """The axis with its numbers. It adds nothing for those who listen: every number is also in the text."""
    baseline = tag("line", x1="0%", x2="100%", y1=0.5, y2=0.5, class_="base")
    ticks = [
        html(
            tag("line", x1=f"{axis.place(tick)}%", x2=f"{axis.place(tick)}%", y1=0, y2=5, class_="base"),
            tag("text", typeset(label), x=f"{axis.place(tick)}%", y=19),
        )
        for tick, label in axis.labels().items()
    ]
    return tag("svg", baseline, ticks, class_="axis", width="100%", height=24, aria_hidden="true")


def key_mark(shape: int) -> Html:
    """A shape alone, for a legend."""
    drawn = tag("path", d=_SHAPES[shape % SHAPES], transform="translate(8 8)", class_=f"mark m{shape % SHAPES}")
    return tag("svg", drawn, class_="key", width=16, height=16, aria_hidden="true")


def key_line(kind: str) -> Html:
    """An upright line alone, for a legend."""
    drawn = tag("line", x1=8, x2=8, y1=0, y2=16, class_=kind)
    return tag("svg", drawn, class_="key", width=16, height=16, aria_hidden="true")


def picture(
    parts: Iterable[Child],
    *,
    title: str,
    description: str,
    kind: str = "plot",
    width: int | str = "100%",
    height: int = _HEIGHT,
) -> Html:
    """An SVG that can be read aloud."""
    return tag(
        "svg",
        tag("title", title),
        tag("desc", description),
        parts,
        role="img",
        aria_label=f"{title}: {description}",
        class_=kind,
        width=width,
        height=height,
    )


def _level(axis: Axis, low: float, high: float, kind: str) -> Html:
    return tag("line", y1=_MIDDLE, y2=_MIDDLE, class_=kind, x1=f"{axis.place(low)}%", x2=f"{axis.place(high)}%")


def _upright(axis: Axis, value: float, kind: str, reach: float = _MIDDLE) -> Html:
    x = f"{axis.place(value)}%"
    return tag("line", x1=x, x2=x, y1=_MIDDLE - reach, y2=_MIDDLE + reach, class_=kind)


def _mark(axis: Axis, value: float, shape: int) -> Html:
    # Only a nested picture can be placed in per cent and yet hold a path in pixels.
    path = tag("path", d=_SHAPES[shape % SHAPES], class_=f"mark m{shape % SHAPES}")
    return tag("svg", path, x=f"{axis.place(value)}%", y=_MIDDLE, overflow="visible")
