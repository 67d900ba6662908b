"""Whether it works for everyone: effects within the levels of each segment, and whether they differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from foldaway.effects import Effects
from foldaway.effects.numbers import typeset
from foldaway.effects.segment import BySegment
from foldaway.report.drawing.markup import Child, Html, html, named, tag
from foldaway.report.page.document import Section, table


def segments(effects: Effects) -> Iterator[Section]:
    """A card for each segment: what it comes to, and one table of all outcomes and arms; nothing without segments."""
    if not effects.segments:
        return
    columns: dict[str, list[BySegment]] = {}
    for each in effects.segments:
        columns.setdefault(each.column, []).append(each)
    cards = [_card(effects, column, parts) for column, parts in columns.items()]
    yield Section("segments", "Does it work for everyone?", tag("div", cards, class_="cards"))


def _card(effects: Effects, column: str, parts: Sequence[BySegment]) -> Html:
    several = len({each.arm for each in parts}) > 1
    header: list[str] = []
    rows: list[list[Child]] = []
    for each in parts:
        header, lines = each.table(effects.confidence)
        name = html(named(effects.heading(each.outcome)), html(", ", named(each.arm)) if several else None)
        for line, (level, *cells) in enumerate(lines):
            rows.append([None if line else name, named(level), *map(typeset, cells)])
    notes: list[str] = [
        html(named(effects.heading(each.outcome)), ": ", each.summary) for each in parts if each.differs
    ]
    if not notes:
        known = any(each.differs is not None for each in parts)
        notes = ["There is no sign that effects differ between levels." if known else parts[0].summary]
    reasons = [html(named(effects.heading(each.outcome)), ", ", why) for each in parts for why in each.reasons]
    caption = f"Effect against {parts[0].control} within each level of {column}"
    return tag(
        "article",
        tag("h3", "By ", named(column)),
        [tag("p", note) for note in notes],
        table(caption, ["outcome", *header], rows, left=2),
        tag("ul", [tag("li", reason) for reason in reasons], class_="notes") if reasons else None,
        class_="card",
    )
