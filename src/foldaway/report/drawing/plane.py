"""A square plane cut in two by a straight line, with the origin marked: what holds lies on one side."""

from __future__ import annotations

from collections.abc import Iterator

from foldaway.effects.numbers import typeset
from foldaway.report.drawing.figures import Axis, picture
from foldaway.report.drawing.markup import Child, Html, html, tag

_SIZE, _LEFT, _TOP, _BELOW = 220, 64, 8, 26


def plane(
    reach: float, slopes: tuple[float, float], beyond: float, *, title: str, description: str, words: tuple[str, str]
) -> Html:
    """Points (x, y) within the reach of 0, shaded where slopes · (x, y) lies as far as a number, or further.

    Args:
        reach: How far the plane goes from 0 in each direction.
        slopes: Of the line.
        beyond: The number, which is not 0.
        title: What the picture is.
        description: What it shows, for those who hear it.
        words: What is said at the axis across and at the upright one.
    """
    axis = Axis(-reach, reach)
    corners = list(_cut(reach, slopes, beyond))
    points = " ".join(f"{_across(reach, x):g},{_up(reach, y):g}" for x, y in corners)
    drawn: list[Child] = [tag("polygon", points=points, class_="band c0") if corners else None]
    for tick, label in axis.labels(5).items():
        x, y = _across(reach, tick), _up(reach, tick)
        drawn.append(tag("text", typeset(label), x=x, y=_TOP + _SIZE + 16))
        drawn.append(tag("text", typeset(label), x=_LEFT - 6, y=y + 4, class_="level"))
    middle, far = _across(reach, 0), (_LEFT, _LEFT + _SIZE)
    drawn.append(tag("line", x1=far[0], x2=far[1], y1=_up(reach, 0), y2=_up(reach, 0), class_="base"))
    drawn.append(tag("line", x1=middle, x2=middle, y1=_TOP, y2=_TOP + _SIZE, class_="base"))
    drawn.append(tag("circle", cx=middle, cy=_up(reach, 0), r=4, class_="mark"))
    said = tag("p", tag("small", f"Across: {words[0]}. Upright: {words[1]}."))
    width, height = _LEFT + _SIZE + 12, _TOP + _SIZE + _BELOW
    return html(picture(drawn, title=title, description=description, kind="curves", width=width, height=height), said)


def _across(reach: float, x: float) -> float:
    return round(_LEFT + _SIZE * (x + reach) / (2 * reach), 1)


def _up(reach: float, y: float) -> float:
    return round(_TOP + _SIZE * (reach - y) / (2 * reach), 1)


def _cut(reach: float, slopes: tuple[float, float], beyond: float) -> Iterator[tuple[float, float]]:
    """The corners of that part of the square (Sutherland and Hodgman 1974).

    Example:
        >>> list(_cut(1.0, (0.0, 1.0), 0.5))
        [(1.0, 0.5), (1.0, 1.0), (-1.0, 1.0), (-1.0, 0.5)]
    """
    sign = 1.0 if beyond > 0 else -1.0

    def height(point: tuple[float, float]) -> float:
        return sign * (slopes[0] * point[0] + slopes[1] * point[1] - beyond)

    square = [(-reach, -reach), (reach, -reach), (reach, reach), (-reach, reach)]
    for here, after in zip(square, [*square[1:], square[0]], strict=True):
        one, two = height(here), height(after)
        if one >= 0:
            yield here
        if (one >= 0) != (two >= 0):
            share = one / (one - two)
            yield here[0] + share * (after[0] - here[0]), here[1] + share * (after[1] - here[1])
