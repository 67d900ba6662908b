"""How a check came out, in a word with a sign of its own: colour alone says nothing."""

from __future__ import annotations

from typing import Literal

from foldaway.report.drawing.markup import Html, tag

State = Literal["passes", "look", "fails", "open"]

_WORDS: dict[State, tuple[str, str]] = {
    "passes": ("✓", "Passes"),
    "look": ("?", "Look into this"),
    "fails": ("!", "Fails"),
    "open": ("–", "Cannot be told"),
}


def badge(state: State) -> Html:
    """The word for how a check came out."""
    sign, word = _WORDS[state]
    return tag("span", tag("span", sign, aria_hidden="true"), " ", word, class_=f"badge {state}")
