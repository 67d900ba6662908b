"""Which of a comparison's effects the report leads with, and what it comes to.

The choice depends on the plan and on the arms' counts, never on what was found: choosing by result would bias it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from foldaway.effects.effect import Effect
from foldaway.effects.findings import Findings
from foldaway.inference.offered import BOOTSTRAP

# Which kind of error leads when there are several, best first.
_KINDS = ("CR3", "CR2", "CR1", BOOTSTRAP, "HC2", "HC1")

# Which estimator leads where the plan names none, best first.
_ESTIMATORS = ("interacted", "regression", "difference", "ipw")

# Records of the smaller arm for each of its coefficients, below which arms are not adjusted each on its own.
_ENOUGH = 20

Verdict = Literal["higher", "lower", "unclear", "unknown"]


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
        kinds: dict[str, list[str]] = {}
        for row in self.rows:
            kinds.setdefault(row.estimator, []).append(row.se_kind)
        return [row for row in self.rows if row.se_kind == best_kind(kinds[row.estimator])]

    @property
    def bootstrap(self) -> Effect | None:
        """The leading estimator's row with errors from the bootstrap, if there is one, whichever kind leads."""
        same = (row for row in self.rows if (row.estimator, row.se_kind) == (self.lead.estimator, BOOTSTRAP))
        return next(same, None)


def best_kind(kinds: Sequence[str]) -> str:
    """The kind of error to show, of several.

    Example:
        >>> best_kind(["classical", "HC0", "HC1", "CR0", "CR1"])
        'CR1'
    """
    return next((kind for kind in _KINDS if kind in kinds), kinds[0])


def comparisons(effects: Findings) -> list[Comparison]:
    """The comparisons that have effects, in the order of the plan."""
    rows: dict[tuple[str, str], list[Effect]] = {}
    for row in effects:
        rows.setdefault((row.outcome, row.arm), []).append(row)
    found = []
    for (outcome, arm), those in rows.items():
        estimator = _leading(effects, those)
        kind = best_kind([row.se_kind for row in those if row.estimator == estimator])
        lead = next(row for row in those if (row.estimator, row.se_kind) == (estimator, kind))
        found.append(Comparison(outcome, arm, lead.control, lead, those))
    return found


def _leading(effects: Findings, rows: Iterable[Effect]) -> str:
    there = list(dict.fromkeys(row.estimator for row in rows))
    first = effects.plan.estimators if effects.plan is not None else ()
    order = first or (_ESTIMATORS if _large(effects) else _ESTIMATORS[1:])
    return next((name for name in order if name in there), there[0])


def _large(effects: Findings) -> bool:
    """Whether each arm has records enough to be adjusted on its own."""
    coefficients = 1 if effects.plan is None else len(effects.plan.regressors)
    return min(effects.sample_ratio.observed.values(), default=0) >= _ENOUGH * coefficients


def why(effects: Findings, lead: Effect) -> str:
    """Why this estimator leads, in one sentence."""
    plan = effects.plan
    if plan is not None and plan.estimators:
        first = plan.estimators[0] == lead.estimator
        return "the plan names it first." if first else "those that the plan names before it could not be computed."
    if lead.estimator == "interacted":
        return (
            "it adjusts for the covariates arm by arm, which in large samples is never less precise than the plain "
            "difference (Lin 2013)."
        )
    if lead.estimator == "regression":
        return "it adjusts for the covariates, and the arms are too small to be adjusted each on its own."
    if plan is not None and plan.covariates:
        return "those that adjust for the covariates could not be computed."
    return "the plan has no covariates to adjust for."


def verdict(effects: Findings, row: Effect) -> Verdict:
    """What the interval says; where p-values are adjusted for several comparisons, these decide.

    The interval and its p-value are two forms of one statement, so both agree where nothing was adjusted.
    """
    if not (math.isfinite(row.ci_lower) and math.isfinite(row.ci_upper)):
        return "unknown"
    clear = row.ci_lower > 0 or row.ci_upper < 0
    if row.p_adjusted is not None:
        clear = row.p_adjusted < 1 - effects.confidence
    if not clear:
        return "unclear"
    return "higher" if row.estimate > 0 else "lower"


def holds_any_time(row: Effect) -> bool:
    """Whether the effect is clear also if one looked at the results along the way."""
    return row.anytime_ci_lower > 0 or row.anytime_ci_upper < 0
