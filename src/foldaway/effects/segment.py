"""The effects of an arm by the levels of a segment."""

from __future__ import annotations

from textwrap import fill

import msgspec

from foldaway.effects.effect import Effect
from foldaway.effects.numbers import interval_text, p_relation, p_text
from foldaway.table import number, places_for, text_table

OTHERS = "(others)"

_CLEAR = 0.05


class BySegment(msgspec.Struct, frozen=True, kw_only=True):
    """One outcome's effects by the levels of a segment, and a test of whether they differ.

    Attributes:
        column: The segment.
        outcome: The outcome.
        arm: The arm.
        control: What it is compared with.
        effects: One for each level, which is its ``segment``; ``p_adjusted`` allows for there being several.
        differ_df: How many differences between levels are tested; None if there is no test.
        differ_p_value: How rare effects that differ so much are by chance if they are alike.
    """

    column: str
    outcome: str
    arm: str
    control: str
    effects: list[Effect]
    differ_df: int | None = None
    differ_p_value: float | None = None

    @property
    def title(self) -> str:
        """What it is about."""
        return f"{self.outcome}: {self.arm} against {self.control}, by {self.column}"

    @property
    def summary(self) -> str:
        """Whether the effects differ, in a sentence."""
        p = self.differ_p_value
        if p is None:
            return f"Too few levels of {self.column} have an effect that can be told to say whether they differ."
        if p < _CLEAR:
            return f"The effects differ between levels of {self.column} (p {p_relation(p)})."
        return f"There is no sign that the effects differ between levels of {self.column} (p {p_relation(p)})."

    def table(self, confidence: float) -> tuple[list[str], list[list[str]]]:
        """The header and a row for each level."""
        places = places_for(row.std_error for row in self.effects)
        header = [self.column, "records", "effect", f"{100 * confidence:g} % interval", "adj. p"]
        return header, [
            [
                row.segment or OTHERS,
                f"{row.n:,}",
                number(row.estimate, places=places),
                interval_text(row.ci_lower, row.ci_upper, places),
                p_text(row.p_adjusted),
            ]
            for row in self.effects
        ]

    @property
    def reasons(self) -> list[str]:
        """Why some levels are withheld."""
        return [f"{row.segment or OTHERS}: {row.why}" for row in self.effects if row.why]

    def to_string(self, confidence: float, width: int) -> str:
        """The table and what it comes to, as text."""
        header, rows = self.table(confidence)
        reasons = [fill(f"– {reason}", width, subsequent_indent="  ") for reason in self.reasons]
        return "\n".join([self.title, text_table(header, rows, left=1), *reasons, fill(self.summary, width)])
