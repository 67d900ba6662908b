"""Whether it works for everyone: effects within the levels of each segment, and whether they differ."""

from __future__ import annotations

from collections.abc import Iterator

from foldaway.effects import Effects
from foldaway.report.drawing.markup import html, tag
from foldaway.report.page.document import Section, table


def segments(effects: Effects) -> Iterator[Section]:
    """A table for each segment, outcome and arm, with what it comes to before it; nothing without segments."""
    if not effects.segments:
        return
    parts = []
    for each in effects.segments:
        header, rows = each.table(effects.confidence)
        parts += [table(each.titled(effects.heading(each.outcome)), header, rows), tag("p", each.summary)]
        parts += [tag("p", reason) for reason in each.reasons]
    yield Section("segments", "Does it work for everyone?", html(*parts))
