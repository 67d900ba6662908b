"""Comparisons of arms: which of its effects each leads with, and the correction that the plan names for several.

The choice depends on the plan and on the arms' counts, never on what was found: choosing by result would bias it.

A family is all comparisons of the plan, outcomes by arms, also those that cannot be told yet: how many there are must
not depend on the data. Guardrails are not in it. All of them have to hold at once, and a claim that needs every one of
its tests is right as often as each of them (the intersection-union test, Berger 1982).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import msgspec

from foldaway.effects.effect import Effect
from foldaway.effects.findings import Findings
from foldaway.inference.intervals import corrected
from foldaway.plan import Plan
from foldaway.plan.vocabulary import BOOTSTRAP, ERRORS, ESTIMATORS, MODES, SUMS, best

# Records of the smaller arm for each of its coefficients, below which arms are not adjusted each on its own.
_ENOUGH = 20

_CORRECTED = {"p_value": "p_adjusted", "anytime_p_value": "anytime_p_adjusted"}

F = TypeVar("F", bound=Findings)


class Comparison(NamedTuple):
    """One arm against the control, for one outcome: all its effects, and the one that the report leads with."""

    outcome: str
    arm: str
    control: str
    lead: Effect
    rows: list[Effect]

    @property
    def best(self) -> list[Effect]:
        """One row for each estimator, with the best kind of error it has."""
        return headline(self.rows)

    @property
    def bootstrap(self) -> Effect | None:
        """The leading estimator's row with errors from the bootstrap; if it has none, the best estimator's."""
        rows = {row.estimator: row for row in self.rows if row.se_kind == BOOTSTRAP and row.reliable}
        return rows.get(self.lead.estimator) or (rows[best(ESTIMATORS, rows)] if rows else None)


def headline(rows: Iterable[Effect]) -> list[Effect]:
    """One row for each outcome, arm and estimator: of those that are reliable, if any is, the kind that ranks first.

    Where an error that allows for several records of a unit is withheld, none that does not takes its place.
    """
    kinds: dict[tuple[str, str, str], dict[str, Effect]] = {}
    for row in rows:
        kinds.setdefault((row.outcome, row.arm, row.estimator), {})[row.se_kind] = row
    found = []
    for those in kinds.values():
        fitting = [kind for kind in those if ERRORS[kind].clusters] or list(those)
        reliable = [kind for kind in fitting if those[kind].reliable]
        found.append(those[best(ERRORS, reliable or fitting)])
    return found


def comparisons(effects: Findings) -> list[Comparison]:
    """The comparisons that have effects, in the order of the plan."""
    rows: dict[tuple[str, str], list[Effect]] = {}
    for row in effects:
        rows.setdefault((row.outcome, row.arm), []).append(row)
    return [_comparison(effects, those) for those in rows.values()]


def _comparison(effects: Findings, rows: list[Effect]) -> Comparison:
    fitting = [row for row in rows if allows_for_units(effects.plan, row)]  # none only where rows were filtered
    by_estimator = {row.estimator: row for row in headline(fitting or rows)}
    reliable = [name for name, row in by_estimator.items() if row.reliable]
    lead = by_estimator[_leading(effects, reliable or list(by_estimator))]
    return Comparison(lead.outcome, lead.arm, lead.control, lead, rows)


def allows_for_units(plan: Plan, row: Effect) -> bool:
    """Whether a row's error allows for what records have in common, if they may: without that none leads."""
    return not plan.several or ERRORS[row.se_kind].clusters or row.se_kind == BOOTSTRAP


def _leading(effects: Findings, there: Sequence[str]) -> str:
    plan = effects.plan
    if effects.sample_ratio.state != "passes":  # what relies on probabilities that do not fit leads only if alone
        there = [name for name in there if not ESTIMATORS[name].assumes] or there
    if plan.estimators:
        return next((name for name in plan.estimators if name in there), there[0])
    # Whether each arm has records enough to be adjusted on its own.
    large = min(effects.sample_ratio.observed.values(), default=0) >= _ENOUGH * len(plan.regressors)
    if plan.mode is not None and MODES[plan.mode].at_end:
        large = False  # its error is not the population's: see `analysis`
    fit = [name for name in there if large or not ESTIMATORS[name].by_arm]
    return best(ESTIMATORS, fit or there[:1])


def why(effects: Findings, lead: Effect) -> str:
    """Why this estimator leads, in one sentence."""
    plan = effects.plan
    if plan.estimators and plan.estimators[0] == lead.estimator:
        return "the plan names it first."
    if plan.estimators and lead.estimator not in plan.estimators:
        return "its error allows for units with several records."
    if plan.estimators:
        return "the estimators that the plan names before it could not be computed."
    outcome = plan.outcome(lead.outcome)
    if plan.covariates and not any(ESTIMATORS[name].adjusts for name in outcome.READ_BY):
        return f"{outcome.level}s are not adjusted for covariates."
    if plan.covariates and not ESTIMATORS[lead.estimator].adjusts:
        return "the estimators that adjust for the covariates could not be computed."
    if plan.within_strata and outcome.KIND in ("mean", "share") and SUMS in ESTIMATORS[lead.estimator].sources:
        return f"it compares the arms within {'sites' if plan.within_sites else 'strata'}."
    return ESTIMATORS[lead.estimator].because


def tested(effects: Findings, outcomes: Iterable[str]) -> list[str]:
    """Which question p answers, for outcomes whose plan does not ask whether there is an effect."""
    wanted: dict[str, list[str]] = {}
    for outcome in map(effects.plan.outcome, outcomes):
        if outcome.wanted:
            wanted.setdefault(outcome.wanted, []).append(outcome.heading)
    return [
        f"{', '.join(those)}: p is for the plan's question. If it is small, the arm is {shown}."
        for shown, those in wanted.items()
    ]


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
