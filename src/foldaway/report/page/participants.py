"""Who took part: the flow diagram of CONSORT 2025, and the table of baseline characteristics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from foldaway.effects import Effects
from foldaway.effects.baseline import BASELINE_LEGEND
from foldaway.effects.flow import FlowArm, FlowDiagram
from foldaway.effects.numbers import typeset
from foldaway.report.drawing.markup import Html, html, named, tag
from foldaway.report.page.document import Section, card, notes, table

ROUNDED = "Counts are rounded until the trial has ended, and small ones are left out."


def participants(effects: Effects) -> Iterator[Section]:
    """Nothing where the plan asks for neither."""
    cards = []
    if effects.flow is not None:
        cards.append(card("From assessment to analysis", *_diagram(effects, effects.flow)))
    if effects.baseline:
        header, rows = effects.baseline.printed()
        cells = [[named(row[0]), *map(typeset, row[1:])] for row in rows]
        said = notes([BASELINE_LEGEND, *effects.baseline.reasons])
        cards.append(card("Baseline characteristics", table("By arm", header, cells), said))
    if cards:
        yield Section("participants", "Who took part", html(cards))


def _diagram(effects: Effects, flow: FlowDiagram) -> Iterator[Html | None]:
    """The boxes from top to bottom, arms side by side; a list for those who hear it."""
    words = flow.counted
    before = []
    if flow.assessed is not None:
        before.append(_box(f"Assessed for eligibility: {flow.assessed:,}"))
    if flow.excluded:
        before.append(_box(f"Excluded: {sum(flow.excluded.values()):,}", flow.excluded, "box aside"))
    unknown = {} if not flow.unknown else {"without a known arm": flow.unknown}
    before.append(_box(f"Randomised: {flow.randomised:,} {words}", unknown))
    arms = [tag("div", list(_arm(effects, each)), class_="arm-flow") for each in flow.arms]
    yield tag(
        "div", before, tag("div", arms, class_="arms-flow"), class_="flow", role="group", aria_label="Flow diagram"
    )
    said = [] if flow.exact else [ROUNDED]
    if flow.unaccounted:
        said.append(f"Assessed, not excluded, and without a record: {flow.unaccounted:,}.")
    if words == "records":
        said.append("The arms' boxes count records, of which a unit may have several.")
    yield notes(said)


def _arm(effects: Effects, arm: FlowArm) -> Iterator[Html]:
    yield _box(html("Allocated to ", named(arm.arm), f": {arm.randomised:,}"))
    if arm.received is not None:
        yield _box(f"Received it: {arm.received:,}")
    lost = {**arm.lost, **{f"no {effects.heading(name)}": n for name, n in arm.without.items() if n}}
    if lost:
        yield _box("Lost, by reason", lost, "box aside")
    analysed = {effects.heading(name): n for name, n in arm.analysed.items()}
    yield _box("Analysed, by outcome", analysed)


def _box(title: Html | str, counts: Mapping[str, int] = {}, kind: str = "box") -> Html:
    items = [tag("li", named(reason), f": {n:,}") for reason, n in counts.items()]
    return tag("div", tag("p", title), tag("ul", items) if items else None, class_=kind)
