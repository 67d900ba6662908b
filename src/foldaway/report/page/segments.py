"""Whether it works for everyone: effects by the levels of each segment, drawn, and every number one click away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from foldaway.effects import Effects
from foldaway.effects.effect import Effect, sentence
from foldaway.effects.headline import comparisons, tested
from foldaway.effects.numbers import typeset
from foldaway.effects.segment import SITE, BySegment, unclear
from foldaway.errors import many
from foldaway.report.drawing.markup import Child, Html, html, listed, named, tag
from foldaway.report.page.document import Section, card, details, notes, table
from foldaway.report.page.forest import forest
from foldaway.tallies.levels import OTHERS

# Of so many levels, the largest, the effects are drawn at once.
_MOST = 10

# Of so many outcomes and arms as well; of more, all but the first and those that differ are one click away.
_MOST_PARTS = 3


def by_segment(effects: Effects) -> Iterator[Section]:
    """A card for each segment; nothing without segments."""
    if not effects.segments:
        return
    columns: dict[str, list[BySegment]] = {}
    for each in effects.segments:
        columns.setdefault(each.column, []).append(each)
    cards = [_segment(effects, column, parts) for column, parts in columns.items()]
    yield Section("segments", "Does it work for everyone?", tag("div", cards, class_="cards"))


def _segment(effects: Effects, column: str, parts: Sequence[BySegment]) -> Html:
    several = len({each.arm for each in parts}) > 1
    headings = [_heading(effects, each, several=several) for each in parts]
    differ = [html(name, ": ", each.summary) for name, each in zip(headings, parts, strict=True) if each.differs]
    said: Sequence[Child] = differ or [sentence(unclear(parts))]
    drawn = []
    for place, (heading, each) in enumerate(zip(headings, parts, strict=True)):
        shown = _part(effects, each)
        at_once = not place or each.differs or len(parts) <= _MOST_PARTS
        drawn.append(html(tag("h4", heading), shown) if at_once else details(heading, shown))
    return card(["By ", named(column)], [tag("p", each) for each in said], *drawn)


def _heading(effects: Effects, each: BySegment, *, several: bool) -> Html:
    return html(named(effects.heading(each.outcome)), [", ", named(each.arm)] if several else None)


def _part(effects: Effects, each: BySegment) -> Html:
    """One outcome and arm: the levels drawn, the largest first, and the same as a table."""
    labels = [
        html(named(row.segment or OTHERS), tag("small", " ", many(row.n, "record")) if row.n is not None else None)
        for row in each.effects
    ]
    over = list(_over_sites(effects, each))
    means = [row for row, _ in over]
    known = any(row.estimate is not None for row in each.effects)
    plot = None
    if known:
        plot = forest(effects, [*means, *each.effects], [*(name for _, name in over), *labels], _MOST + len(over))
    header, lines = each.table(effects.confidence)
    header = ["adjusted p" if name == "adj. p" else name for name in header]
    rows = [[named(level), *map(typeset, cells)] for level, *cells in lines]
    caption = f"{effects.heading(each.outcome)}: effect of {each.arm} against {each.control} by {each.column}"
    numbers = details("All numbers", table(caption, header, rows), notes(tested(effects, [each.outcome])))
    said = [tag("p", typeset(sentence)) for sentence in each.across]
    return html(plot, said, notes(_withheld(each)), numbers)


def _over_sites(effects: Effects, each: BySegment) -> Iterator[tuple[Effect, Html]]:
    """Of sites, the effect within them and the mean over them."""
    if each.column != SITE:
        return
    found = each.random
    for comparison in comparisons(effects):
        if (comparison.outcome, comparison.arm) == (each.outcome, each.arm):
            yield comparison.lead, tag("b", "Within sites")
            if found is not None:
                ends = {"ci_lower": found.ci_lower, "ci_upper": found.ci_upper, "segment": "mean over sites"}
                lead = msgspec.structs.replace(
                    comparison.lead,
                    estimate=found.estimate,
                    std_error=found.std_error,
                    anytime_ci_lower=None,
                    anytime_ci_upper=None,
                    **ends,
                )
                yield lead, tag("b", "Mean over sites")


def _withheld(each: BySegment) -> Iterator[Html]:
    """Each reason once, with the levels that it is about."""
    reasons: dict[str, list[str]] = {}
    for row in each.effects:
        if row.why:
            reasons.setdefault(row.why, []).append(row.segment or OTHERS)
    for why, levels in reasons.items():
        shown, more = levels[:_MOST], len(levels) - _MOST
        names = listed([*map(named, shown), *([f"{more:,} more"] if more > 0 else [])])
        yield html(names, ": ", why)
