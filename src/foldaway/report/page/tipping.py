"""What missing outcomes could change: a picture for each comparison, with the same in words and numbers."""

from __future__ import annotations

from foldaway.effects import Effects
from foldaway.effects.tipping import Tipping
from foldaway.report.drawing.markup import Html, html, named, tag
from foldaway.report.drawing.plane import plane
from foldaway.report.page.document import table
from foldaway.table import ABSENT, number

# The picture goes so much further than the nearer of the points where the finding tips.
_ROOM = 1.6


def tipping(effects: Effects, found: Tipping) -> Html:
    """One comparison."""
    heading = effects.heading(found.outcome)
    title = f"What missing outcomes could change: {heading}, {found.arm} against {found.control}"
    rows = [
        [
            named(arm),
            f"{100 * share:.3g}\u202f%",
            ABSENT if (by := found.apart[arm]) is None else number(by, 3),
            number(found.average[arm], 3),
            "yes" if found.possible[arm] else "no, beyond its bounds",
        ]
        for arm, share in found.missing.items()
    ]
    header = ["arm", "missing", "apart from the observed by", "so that they average", "possible"]
    numbers = table("Where the finding tips, if only this arm's missing outcomes lie apart", header, rows)
    return html(
        tag("p", found.sentence(heading)),
        tag("figure", tag("figcaption", title), _picture(found, title)),
        numbers,
    )


def _picture(found: Tipping, title: str) -> Html:
    reach = _ROOM * min(abs(by) for by in found.apart.values() if by is not None)
    control, arm = found.missing[found.control], found.missing[found.arm]
    change = "the finding changes" if found.shown else "an effect would be shown"
    return plane(
        reach,
        (-control, arm),
        found.shift,
        title=title,
        description=f"{change} where it is shaded; the dot is where missing outcomes are like the observed ones",
        words=(
            f"how far the missing outcomes of {found.control} lie above its observed ones",
            f"the same of {found.arm}. Where it is shaded, {change}",
        ),
    )
