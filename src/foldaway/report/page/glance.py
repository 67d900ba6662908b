"""At a glance: one line for each outcome and arm, and what to know about the verdicts."""

from __future__ import annotations

from foldaway.effects import Effects
from foldaway.effects.numbers import typeset
from foldaway.effects.scorecard import explanations, lines_of
from foldaway.effects.verdict import Verdict
from foldaway.report.drawing.markup import Html, html, named, tag
from foldaway.report.page.document import Section, table

_SIGNS = {
    "better": ("good", "✓"),
    "not worse": ("good", "✓"),
    "alike": ("good", "="),
    "worse": ("fails", "!"),
    "higher": ("higher", "▲"),
    "lower": ("lower", "▼"),
}


def glance(effects: Effects) -> Section:
    """The scorecard."""
    lines = lines_of(effects)
    several = len({line.verdict.arm for line in lines}) > 1
    first = lines[0].verdict
    arms = ["Control", "In the arm"] if several else [first.control, first.arm]
    header = ["Outcome", *(["Arm"] if several else []), "Verdict", "Effect"]
    header += [f"{100 * effects.confidence:g} % interval", *arms]
    rows = [
        [
            html(named(line.verdict.label), _measure(line.verdict)),
            *([html(named(line.verdict.arm))] if several else []),
            mark(line.verdict),
            *map(typeset, (line.effect, line.interval, line.control_level, line.level)),
        ]
        for line in lines
    ]
    notes = [tag("li", note) for note in explanations(effects)]
    body = tag(
        "div",
        table("Every outcome at a glance", header, rows, left=2 + several),
        tag("ul", notes, class_="notes") if notes else None,
        class_="card",
    )
    return Section("glance", "At a glance", body)


def _measure(said: Verdict) -> Html | None:
    return tag("small", " ", tag("bdi", said.measure)) if said.measure else None


def mark(said: Verdict) -> Html:
    """The verdict in a word or two, with a sign of its own: colour alone says nothing."""
    kind, sign = _SIGNS.get(said.verdict, ("unclear", "○"))
    text = said.words
    return tag("span", tag("span", sign, aria_hidden="true"), f" {text[:1].upper()}{text[1:]}", class_=f"badge {kind}")
