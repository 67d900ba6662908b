"""The correction for several comparisons that the plan names.

A family is all comparisons of the plan, outcomes by arms, also those that cannot be told yet: how many there are must
not depend on the data. Guardrails are not in it. All of them have to hold at once, and a claim that needs every one of
its tests is right as often as each of them (the intersection-union test, Berger 1982).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import msgspec

from foldaway.effects.effect import Effect
from foldaway.effects.findings import Findings
from foldaway.effects.headline import Comparison, comparisons
from foldaway.inference.intervals import corrected

F = TypeVar("F", bound=Findings)

_CORRECTED = {"p_value": "p_adjusted", "anytime_p_value": "anytime_p_adjusted"}


def family(effects: Findings) -> list[Comparison]:
    """The comparisons that are corrected together."""
    return [each for each in comparisons(effects) if not effects.plan.outcome(each.outcome).guardrail]


def with_correction(effects: F) -> F:
    """The same with adjusted p-values, for each estimator and kind of error apart.

    A comparison that does not have the estimator or the kind is represented by the row that it leads with.
    """
    together = family(effects)
    found: dict[int, dict[str, float | None]] = {}
    for kind in dict.fromkeys(map(_kind, effects)):
        for field, adjusted in _CORRECTED.items():
            members = [
                next((row for row in each.rows if _kind(row) == kind and getattr(row, field) is not None), each.lead)
                for each in together
            ]
            values = corrected([getattr(row, field) for row in members], effects.plan.correction)
            for row, value in zip(members, values, strict=True):
                if _kind(row) == kind:
                    found.setdefault(id(row), {})[adjusted] = value
    return replace(effects, rows=[msgspec.structs.replace(row, **found.get(id(row), {})) for row in effects])


def _kind(row: Effect) -> tuple[str, str]:
    return row.estimator, row.se_kind
