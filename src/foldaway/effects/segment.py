"""The effects of an arm by the levels of a segment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from foldaway.effects.effect import Effect
from foldaway.effects.numbers import interval_text, p_relation, p_text
from foldaway.effects.tabular import Tabular
from foldaway.inference.random_effects import RandomEffects
from foldaway.table import number, places_for
from foldaway.tallies.levels import OTHERS

SITE = "site"
"""What sites are called where effects are shown by site: there is no such column."""

_CLEAR = 0.05

_POPULATIONS = (
    "The effect within sites speaks about the units of these sites; the mean over sites speaks about sites like these, "
    "of which these are taken to be a sample."
)

# What a table has of the test of whether effects differ.
_TEST = ("differ_df", "differ_p_value", "differ_p_adjusted")


class BySegment(msgspec.Struct, frozen=True, kw_only=True):
    """One outcome's effects by the levels of a segment, and a test of whether they differ.

    Attributes:
        column: The segment.
        outcome: The outcome.
        arm: The arm.
        control: What it is compared with.
        effects: One for each level, which is its ``segment``, the largest first; ``p_adjusted`` allows for there being
            several.
        random: Where the levels are sites, the mean effect over sites; None for fewer than two.
        differ_df: How many differences between levels are tested; None if there is no test.
        differ_p_value: How rare effects that differ so much are by chance if they are alike.
        differ_p_adjusted: The same, allowing for the segment's tests of all outcomes and arms.
    """

    column: str
    outcome: str
    arm: str
    control: str
    effects: list[Effect]
    random: RandomEffects | None = None
    differ_df: int | None = None
    differ_p_value: float | None = None
    differ_p_adjusted: float | None = None

    @property
    def differs(self) -> bool | None:
        """Whether the effects differ; None if there is no test."""
        p = self.differ_p_value if self.differ_p_adjusted is None else self.differ_p_adjusted
        return None if p is None else p < _CLEAR

    @property
    def summary(self) -> str:
        """Whether the effects differ, in a sentence."""
        if self.differs is None:
            why = _untested([self], f"values of {self.column}")
            return why[0].upper() + why[1:]
        if self.differs:
            return f"The effects differ by {self.column} ({self.tested})."
        return f"The data do not show clearly that the effects differ by {self.column} ({self.tested})."

    @property
    def across(self) -> list[str]:
        """Of sites, the mean effect over them, how much they differ, and of whom either mean speaks."""
        if (found := self.random) is None:
            return []
        places = places_for([found.std_error])
        mean, spread = number(found.estimate, places=places), number(found.tau2, 3)
        return [
            f"Mean over sites (random effects, Hartung–Knapp): {mean} "
            f"{interval_text(found.ci_lower, found.ci_upper, places)}, p {p_relation(found.p_value)}. Heterogeneity: "
            f"τ² = {spread}, I² = {100 * found.i2:.0f} %, Q = {number(found.q, 3)} on {found.sites - 1} df, p "
            f"{p_relation(found.q_p_value)}.",
            _POPULATIONS,
        ]

    @property
    def tested(self) -> str:
        """The p-values of the test, in words; empty if there is none."""
        if self.differ_p_value is None:
            return ""
        adjusted = "" if self.differ_p_adjusted is None else f", adjusted {p_relation(self.differ_p_adjusted)}"
        return f"p {p_relation(self.differ_p_value)}{adjusted}"

    def table(self, confidence: float) -> tuple[list[str], list[list[str]]]:
        """The header and a row for each level."""
        places = places_for(row.std_error for row in self.effects)
        adjusted = any(row.p_adjusted is not None for row in self.effects)
        header = [self.column, "records", "effect", f"{100 * confidence:g} % interval", "p"]
        header += ["adj. p"] if adjusted else []
        return header, [
            [
                row.segment or OTHERS,
                number(row.n, places=0),
                number(row.estimate, places=places),
                interval_text(row.ci_lower, row.ci_upper, places),
                p_text(row.p_value),
                *([p_text(row.p_adjusted)] if adjusted else []),
            ]
            for row in self.effects
        ]

    @property
    def reasons(self) -> list[str]:
        """Why some levels are withheld."""
        return [f"{row.segment or OTHERS}: {row.why}" for row in self.effects if row.why]


class Segments(tuple[BySegment, ...], Tabular):
    """All of them, by segment, outcome and arm; as a table, one row for each level.

    A row has the name of the segment as its ``column``, everything that an effect has, with the level as its
    ``segment`` (empty for “(others)”), and the test of whether effects differ between the levels.

    Example:
        >>> import foldaway as fa
        >>> parts = {"segments": [{"column": "c", "levels": ["p", "q"]}]}
        >>> plan = fa.Plan(name="demo", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], **parts)
        >>> trial = fa.Trial(plan)
        >>> trial.fold({"g": ["a", "b"] * 60, "y": [float(i % 7) for i in range(120)], "c": ["p", "q", "q"] * 40})
        >>> trial.effects().segments.to_pandas()[["column", "segment", "n"]].values.tolist()
        [['c', 'q', 80], ['c', 'p', 40]]
    """

    def to_dicts(self) -> list[dict[str, Any]]:
        """One flat dict for each level."""
        return [
            {"column": each.column, **msgspec.structs.asdict(row), **{name: getattr(each, name) for name in _TEST}}
            for each in self
            for row in each.effects
        ]

    def _fields(self) -> dict[str, str]:
        own = BySegment.__annotations__
        return {"column": own["column"], **Effect.__annotations__, **{name: own[name] for name in _TEST}}


def by_size(levels: Iterable[Effect]) -> list[Effect]:
    """The effects of levels, the largest level first; then those whose size is not told, and “(others)” last.

    The sizes are those that are shown: exact ones would tell more than rounded ones do.
    """
    return sorted(levels, key=lambda row: (not row.segment, row.n is None, -(row.n or 0), row.segment))


def unclear(segments: Sequence[BySegment]) -> str:
    """That no test of a segment shows that its effects differ, with the smallest p-value; or that there is no test."""
    tests = [each for each in segments if each.differs is not None]
    if not tests:
        return _untested(segments, "values")
    least = min(tests, key=lambda each: each.differ_p_value or 0.0)
    p = f"smallest {least.tested}" if len(tests) > 1 else least.tested
    return f"the data do not show clearly that effects differ ({p})."


def _untested(segments: Sequence[BySegment], values: str) -> str:
    """Why nobody can tell whether effects differ: the reason of all levels, or that too few have an effect."""
    reasons = {row.why for each in segments for row in each.effects}
    if len(reasons) == 1 and (why := reasons.pop()):
        return f"effects by segment are withheld: {why[0].lower()}{why[1:]}"
    return f"too few {values} have an effect to tell whether they differ."


def in_short(segments: Sequence[BySegment], headings: Sequence[str]) -> list[str]:
    """A sentence for each segment: where effects differ between its levels, allowing for several outcomes and arms."""
    columns: dict[str, list[tuple[BySegment, str]]] = {}
    for each, heading in zip(segments, headings, strict=True):
        columns.setdefault(each.column, []).append((each, f"{heading}, {each.arm}"))
    said = []
    for column, tests in columns.items():
        differ = "; ".join(f"{name} ({each.tested})" for each, name in tests if each.differs)
        found = f"effects differ for {differ}." if differ else unclear([each for each, _ in tests])
        said.append(f"By {column}: {found}")
    return [*said, "Use --all, or in Python all=True, to see the effects by segment."] if said else []
