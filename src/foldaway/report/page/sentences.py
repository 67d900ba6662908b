"""Findings in plain sentences."""

from __future__ import annotations

from foldaway.effects import Effect, Effects
from foldaway.effects.headline import Comparison, holds_any_time, verdict
from foldaway.effects.numbers import interval_text, percent_text, signed, typeset
from foldaway.effects.relative import relative_tells
from foldaway.report.drawing.markup import Child, Html, html, named, tag
from foldaway.table import number, places_for


def sentence(effects: Effects, comparison: Comparison) -> Html:
    """What a comparison came to, for a reader who is no statistician."""
    lead = comparison.lead
    places = places_for([lead.std_error])
    outcome, arm, control = (tag("b", named(name)) for name in (lead.outcome, lead.arm, lead.control))
    size = typeset(number(abs(lead.estimate), places=places))
    said = verdict(effects, lead)
    if said == "unknown":
        effect = typeset(signed(number(lead.estimate, places=places)))
        return html(
            _mark("unclear", "No error to give"),
            html(" ", outcome, ": the effect of ", arm, f" is {effect}, but nothing says how precise that is."),
        )
    if said == "unclear":
        return html(
            _mark("unclear", "No clear effect"),
            html(" of ", arm, " on ", outcome, f". The best estimate is {_effect(lead, places)}; the data fit "),
            f"anything {_between(effects, lead, places)}. That is no proof that there is no effect.",
            _despite(effects, lead),
        )
    return html(
        _mark(said, "Higher" if said == "higher" else "Lower"),
        html(" Under ", arm, ", ", outcome, f" was {size} {said} than under ", control, _relative(lead)),
        f". The data fit a true difference {_between(effects, lead, places)}. ",
        _looks(lead, places),
    )


def _mark(kind: str, words: str) -> Html:
    arrow = {"higher": "▲", "lower": "▼"}.get(kind, "○")
    return tag("span", tag("span", arrow, aria_hidden="true"), " ", words, class_=f"badge {kind}")


def _effect(row: Effect, places: int | None) -> str:
    relative = f" ({typeset(percent_text(row.relative))})" if relative_tells(row) else ""
    return typeset(signed(number(row.estimate, places=places))) + relative


def _relative(row: Effect) -> str:
    level = typeset(number(row.control_level))
    if not relative_tells(row):
        return f" ({level})"
    share = typeset(percent_text(abs(row.relative)).removeprefix("+"))
    return f" ({level}), a {'rise' if row.estimate > 0 else 'fall'} of {share}"


def _between(effects: Effects, row: Effect, places: int | None) -> str:
    low, high = (typeset(signed(number(end, places=places))) for end in (row.ci_lower, row.ci_upper))
    return f"from {low} to {high} ({100 * effects.confidence:g}\u202f% interval)"


def _looks(row: Effect, places: int | None) -> str:
    if holds_any_time(row):
        return f"That it is {'higher' if row.estimate > 0 else 'lower'} holds however often the results were looked at."
    interval = typeset(interval_text(row.anytime_ci_lower, row.anytime_ci_upper, places))
    return f"That is for one look at the end; if results were watched along the way, it is not clear yet: {interval}."


def _despite(effects: Effects, row: Effect) -> Child:
    """Where the interval alone would have said otherwise."""
    if effects.adjustment is None or not (row.ci_lower > 0 or row.ci_upper < 0):
        return None
    return " On its own it would look clear; among so many comparisons it does not."
