"""What is wrong with a plan whose settings have the right types: one sentence for each fault."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator

import msgspec

from foldaway.plan.fields import Settings
from foldaway.plan.offered import estimators_of
from foldaway.plan.vocabulary import BOOTSTRAP, ERRORS, ESTIMATORS, MODES

# The robust tally keeps about k⁴/4 numbers per arm; at 60 columns that is 27 MB.
MOST_COLUMNS = 60

# Arm codes travel as 8-bit integers, with -1 for "unknown".
MOST_ARMS = 100

# Each replicate keeps its own sums for every arm.
MOST_REPLICATES = 100_000

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

# Control characters, surrogates, line and paragraph separators.
_NOT_IN_NAMES = ("Cc", "Cs", "Zl", "Zp")


def faults_of(plan: Settings) -> Iterator[str]:
    """The faults of the plan, none if it can be run."""
    if not _NAME.fullmatch(plan.name):
        yield "`name` must be 1 to 100 letters, digits, dots, dashes or underscores, and start with a letter or digit."
    yield from _arm_faults(plan)
    yield from _column_faults(plan)
    yield from _level_faults(plan)
    yield from _name_faults(plan)
    yield from _estimator_faults(plan)
    yield from _error_faults(plan)
    if not 0.5 <= plan.confidence < 1:
        yield "`confidence` must be at least 0.5 and below 1, for example 0.95."
    if plan.complete_units and plan.unit is None:
        yield "`complete_units` needs `unit`, the column that names the units."
    if not 1 <= plan.anytime_n <= 10**15:
        yield "`anytime_n` must be between 1 and 10^15."
    yield from _server_faults(plan)
    if plan.resampling is not None and not 2 <= plan.resampling.replicates <= MOST_REPLICATES:
        yield f"`bootstrap` must have 2 to {MOST_REPLICATES:,} replicates."
    yield from _federated_faults(plan)


def _server_faults(plan: Settings) -> Iterator[str]:
    if not 1 <= plan.cohort <= 10**9:
        yield "`cohort` must be between 1 and 10^9."
    if plan.max_wait is not None and not 1 <= plan.max_wait <= 10**7:
        yield "`max_wait` must be between 1 and 10^7 seconds."
    if not 1 <= plan.min_per_arm <= 10**9:
        yield "`min_per_arm` must be between 1 and 10^9."


# Settings that mean something only where records stay on devices.
_FEDERATED_ONLY = ("reply_deadline", "reply_share", "retention", "leverage")


def _federated_faults(plan: Settings) -> Iterator[str]:
    if not 1 <= plan.reply_deadline <= 10**7:
        yield "`reply_deadline` must be between 1 and 10^7 seconds."
    if not 0 < plan.reply_share <= 1:
        yield "`reply_share` must be above 0 and at most 1, for example 0.9."
    if not 60 <= plan.retention <= 10**9:
        yield "`retention` must be between 60 and 10^9 seconds."
    if plan.federated is None:
        changed = msgspec.to_builtins(plan)  # without the settings at their default
        yield from (f"`{setting}` needs `federated`." for setting in _FEDERATED_ONLY if setting in changed)
        return
    mode = MODES[plan.federated]
    if plan.resampling is not None:
        yield from ERRORS[BOOTSTRAP].faults(plan)
    yield from mode.faults(plan)
    if plan.unit is not None and not (mode.sites and plan.complete_units):
        yield (
            "`unit` in a federated plan is for sites, which need `complete_units` and `federated` = "
            '"one-message"; a device is a unit by itself.'
        )
    if plan.leverage is not None:
        yield from ERRORS[plan.leverage].faults(plan)


def _arm_faults(plan: Settings) -> Iterator[str]:
    if not 2 <= len(plan.arms) <= MOST_ARMS:
        yield f"`arms` must have two to {MOST_ARMS} arms with their probabilities."
    if "" in plan.arms:
        yield "`arms` has an arm without a name."
    bad = [arm for arm, share in plan.arms.items() if not 0 < share < 1]
    if bad:
        yield f"the probability of {_listed(bad)} must lie between 0 and 1."
    elif plan.arms and not math.isclose(total := math.fsum(plan.arms.values()), 1, abs_tol=1e-9):
        yield f"the probabilities of `arms` add up to {total:.10g} and not to 1."


def _column_faults(plan: Settings) -> Iterator[str]:
    roles: dict[str, list[str]] = {}
    used = [("arm", plan.arm), ("unit", plan.unit), ("weight", plan.weight)]
    used += [("outcomes", c) for c in plan.outcomes] + [("covariates", c) for c in plan.covariates]
    for role, column in used:
        if column is not None:
            roles.setdefault(column, []).append(role)
    for column, of in roles.items():
        if column == "":
            yield f"`{of[0]}` has a column without a name."
        elif len(of) > 1:
            yield f"the column {column!r} is used more than once ({', '.join(of)}); each column has one role."
    if not plan.outcomes:
        yield "`outcomes` must name at least one column."
    if len(plan.columns) > MOST_COLUMNS:
        yield f"the plan has {len(plan.columns)} columns with all levels and outcomes; the most is {MOST_COLUMNS}."


def _level_faults(plan: Settings) -> Iterator[str]:
    for covariate, levels in plan.levels.items():
        if covariate not in plan.covariates:
            yield f"`levels` names {covariate!r}, which is not in `covariates`."
        if len(levels) < 2:
            yield f"`levels` of {covariate!r} must have at least two levels."
        if len(set(levels)) < len(levels):
            yield f"`levels` of {covariate!r} has a level twice."


def _name_faults(plan: Settings) -> Iterator[str]:
    """Names are printed and saved, so they have no line breaks, escape codes or halves of characters."""
    columns = [name for name in (plan.arm, plan.unit, plan.weight) if name is not None]
    levels = [level for levels in plan.levels.values() for level in levels]
    names = dict.fromkeys((*columns, *plan.arms, *plan.outcomes, *plan.covariates, *plan.levels, *levels))
    bad = [name for name in names if any(unicodedata.category(c) in _NOT_IN_NAMES for c in name)]
    if bad:
        yield f"names have no control characters in them, but {_listed(bad)} has."


def _estimator_faults(plan: Settings) -> Iterator[str]:
    for estimator in dict.fromkeys(plan.estimators):
        if estimator not in ESTIMATORS:
            yield f"`estimators` has {estimator!r}; the estimators are {', '.join(ESTIMATORS)}."
        if plan.estimators.count(estimator) > 1:
            yield f"`estimators` has {estimator!r} more than once."
        if estimator in ESTIMATORS:
            yield from ESTIMATORS[estimator].faults(plan)


def _error_faults(plan: Settings) -> Iterator[str]:
    kinds = {name: word for name, word in ERRORS.items() if word.setting == "errors"}
    if plan.errors and plan.federated is not None:
        by_device = " and ".join(name for name, word in kinds.items() if word.by_unit)
        yield f"`errors` is not for a federated plan: its errors are those by device, {by_device}, and `leverage`."
        return
    for kind in dict.fromkeys(plan.errors):
        if kind not in kinds:
            yield f"`errors` has {kind!r}; the kinds are {', '.join(kinds)} (`bootstrap` is a setting of its own)."
        if plan.errors.count(kind) > 1:
            yield f"`errors` has {kind!r} more than once."
        if kind in kinds:
            yield from kinds[kind].faults(plan)
    asked = [kinds[kind] for kind in plan.errors if kind in kinds]
    unserved = [name for name in estimators_of(plan) if not any(kind.serves(name) for kind in asked)]
    if plan.errors and len(asked) == len(plan.errors) and unserved and plan.resampling is None:
        only = ", ".join(asked[0].only_for)
        yield (
            f"the error {asked[0].name!r} is for the estimator {only} alone; add another kind for the others, for "
            "example HC1."
        )


def _listed(names: list[str]) -> str:
    return ", ".join(repr(name) for name in names)
