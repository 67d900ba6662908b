"""What is wrong with a plan whose settings have the right types: one sentence for each fault.

What is wrong with a part by itself is said there.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator

from foldaway.plan.analysis import Analysis
from foldaway.plan.parts import Privacy, Release
from foldaway.plan.reported import errors_of, estimators_of, tallies_of
from foldaway.plan.vocabulary import BOOTSTRAP, COMPLIERS, ERRORS, ESTIMATORS, MANY, MODES, MOMENTS, SUMS

# The robust tally keeps about k⁴/4 numbers per arm; at 60 columns that is 27 MB. Without it there is room for more.
MOST_COLUMNS = 60
MOST_COLUMNS_OF_SUMS = 500

# Exits are counted by stratum, arm, bin and up to 32 groups: so many cells are 128 MB.
MOST_EXITS = 500_000

# Arm codes travel as 8-bit integers, with -1 for "unknown".
MOST_ARMS = 100

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

# Control characters, surrogates, line and paragraph separators.
_NOT_IN_NAMES = ("Cc", "Cs", "Zl", "Zp")


def faults_of(plan: Analysis) -> Iterator[str]:
    """The faults of the plan, none if it can be run."""
    if not _NAME.fullmatch(plan.name):
        yield "`name` must be 1 to 100 letters, digits, dots, dashes or underscores, and start with a letter or digit."
    yield from _arm_faults(plan)
    yield from _column_faults(plan)
    yield from _name_faults(plan)
    yield from _estimator_faults(plan)
    yield from _error_faults(plan)
    yield from _keeping_faults(plan)
    yield from _outcome_faults(plan)
    yield from _exits_faults(plan)
    yield from _federated_faults(plan)
    yield from _bound_faults(plan)
    yield from _missing_faults(plan)
    yield from _segment_faults(plan)
    yield from _baseline_faults(plan)
    yield from _look_faults(plan)
    if plan.received is not None and (plan.keeps != SUMS or plan.federated is not None or plan.release is not None):
        yield (
            "`received` needs sums by group, and cannot be combined with `federated` or `release`: leave one "
            "of them out."
        )
    if plan.received is not None and (named := [each.name for each in plan.outcomes if each.margin_share is not None]):
        yield f"write the margin of {named[0]!r} as a number: `received` asks for effects that have no control level."
    if plan.received is not None and plan.outcomes and not any(COMPLIERS in each.READ_BY for each in plan.outcomes):
        yield "`received` gives the compliers' effect on means and shares; this plan has neither: leave it out."
    if plan.strata is not None:
        if plan.strata.column and not plan.strata.probabilities:
            yield (
                f"list the strata of {plan.strata.column!r} in `strata.levels`, if the arms have the probabilities in "
                "`arms` in each; or give each stratum its own in `strata.probabilities`."
            )
        yield from plan.strata.misfits(plan.arms)
    if plan.release is not None:
        yield from _release_faults(plan, plan.release)


def _keeping_faults(plan: Analysis) -> Iterator[str]:
    """What is kept, and the promises about units that it rests on."""
    if plan.records_per_unit != MANY and plan.unit is None:
        yield f'`records_per_unit = "{plan.records_per_unit}"` needs `unit`, the column that names the units.'
    if plan.cluster is not None:
        yield from _cluster_faults(plan)
    if plan.keeps == SUMS and plan.whole_units and plan.release is None:
        yield (
            '`records_per_unit = "together"` is for moments: add a `[moments]` table, or leave it out; sums need no '
            "such promise, but for a `release`."
        )
    if plan.moments is not None and plan.keeps == SUMS:
        yield f'mode "{plan.mode}" keeps sums: leave out `moments`.'
    if plan.federated is None and plan.bootstrap is not None:
        yield from ERRORS[BOOTSTRAP].faults(plan)
    if plan.keeps == MOMENTS and plan.coefficients is not None:
        yield "`coefficients` work only with sums: leave out either `coefficients` or `moments`."
    if plan.coefficients is not None:
        yield from plan.coefficients.misfits(plan.predictors[1:], tuple(value.name for value in plan.values))


def _cluster_faults(plan: Analysis) -> Iterator[str]:
    """Clusters with units of both arms: only what is joint over the arms allows for them."""
    if plan.federated is not None:
        yield "a federated plan cannot have `cluster`, because its devices are the clusters."
    elif plan.keeps == MOMENTS and plan.whole_units:
        yield (
            "CR errors assume that every cluster is in one arm. With `cluster`, leave out "
            '`records_per_unit = "together"` and `moments`: the jackknife by groups of clusters allows for units of '
            "both arms."
        )


def _outcome_faults(plan: Analysis) -> Iterator[str]:
    """What outcomes need of the plan and of one another."""
    names = [outcome.name for outcome in plan.outcomes]
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        yield f"two outcomes are called {name!r}: give one of them another `name`."
    values = [value.name for value in plan.values]
    for name in dict.fromkeys(name for name in values if values.count(name) > 1):
        yield f"a column has the name {name!r}, which foldaway uses for a value of another column: rename it."
    for outcome in plan.outcomes:
        yield from (need.fault.format(name=outcome.name) for need in outcome.NEEDS if not need.met(plan))
        if set(plan.estimators) <= set(ESTIMATORS) and plan.estimators and not estimators_of(plan, outcome):
            fitting = " or ".join(f'"{name}"' for name in outcome.READ_BY if ESTIMATORS[name].suits(plan))
            yield (
                f"`moments.estimators` has none that fits the outcome {outcome.name!r}: add {fitting or 'one'}, or "
                "leave out `moments.estimators`."
            )


def _exits_faults(plan: Analysis) -> Iterator[str]:
    """Histograms of exits by stratum."""
    for bins in (plan.bins[place] for place in plan.exits_by_stratum):
        assert plan.strata is not None
        if (cells := len(plan.strata.probabilities) * len(plan.arms) * bins.number) > MOST_EXITS:
            yield (
                f"the exits by {bins.column!r} would have {cells:,} cells (by stratum, arm and bin); the limit is "
                f"{MOST_EXITS:,}: choose fewer `bins`, or join strata."
            )


def _missing_faults(plan: Analysis) -> Iterator[str]:
    """Where outcomes may be missing."""
    if not plan.lacking:
        return
    if plan.federated is not None and (plan.unit is None or plan.keeps != SUMS):
        yield (
            '`missing = "allowed"` in a federated plan is for sites that send sums: it needs `unit` and '
            '`federated.mode` = "sums". A device\'s message has one count for all outcomes.'
        )
    if plan.release is not None:
        yield ('`missing = "allowed"` cannot be combined with `release`: its noise is made for one count of records.')
    if plan.moments is not None:
        yield '`missing = "allowed"` works only with sums: leave out `moments`, which need every outcome.'


def _federated_faults(plan: Analysis) -> Iterator[str]:
    if plan.federated is None:
        if plan.privacy.retention != Privacy().retention:
            yield "`privacy.retention` needs `federated`."
        return
    mode = MODES[plan.federated.mode]
    if plan.bootstrap is not None:
        yield from ERRORS[BOOTSTRAP].faults(plan)
    yield from mode.faults(plan)
    if plan.unit is not None and not (mode.sites and (plan.whole_units or mode.keeps == SUMS)):
        yield (
            'in a federated plan, `unit` is for sites, which need `federated.mode` = "sums", or "one-message" with '
            '`records_per_unit = "together"`; a device is a unit by itself.'
        )
    if plan.federated.invited and mode.at_end:
        yield (
            f'`federated.invited` cannot be combined with mode "{plan.federated.mode}", in which nothing ties a '
            "device's messages to its invitation: leave it out, or choose another mode."
        )
    if plan.federated.sites is not None and not (plan.unit is not None and mode.sites):
        yield "`federated.sites` counts sites, which need `unit`, the column that names their units: leave it out."
    if not plan.within_sites:
        for setting in ("probabilities", "joined"):
            if getattr(plan.federated, setting):
                yield (
                    f"`federated.{setting}` is for sites that send sums and are compared within: it needs `unit`, mode "
                    '"sums", and no `strata`.'
                )
    yield from plan.federated.misfits(plan.arms)
    if plan.federated.probabilities and any(each.KIND == "total" for each in plan.outcomes):
        yield "totals need the same probabilities at all sites: leave out `federated.probabilities`, or take a mean."
    if plan.unit is not None and plan.release is not None:
        yield (
            "`release` limits the records of each device, which a site cannot do for its units: leave out `release`; "
            "or, if no site takes part, leave out `unit`."
        )


def _bound_faults(plan: Analysis) -> Iterator[str]:
    for column, limits in plan.limits.items():
        yield from limits.faults(column)
        if any(limits != given.get(column, limits) for given in plan.given_limits):
            yield f"the bounds of {column!r} are given in two ways: give them once."
        if column in plan.levels:
            yield f"{column!r} has levels, and so no bounds: leave out its `bounds`."


def _release_faults(plan: Analysis, release: Release) -> Iterator[str]:
    """What a release rests on: sums of bounded columns, of which nothing but the release tells."""
    if plan.keeps != SUMS:
        yield ('`release` adds noise to sums: leave out `moments`; if there are devices, choose their mode "sums".')
    if plan.unbounded:
        yield f"`release` needs `bounds` for every column: add those of {_listed(plan.unbounded)}."
    if plan.covariates and plan.coefficients is None:
        yield (
            "`release` can adjust only by `coefficients` from before the trial (`foldaway plan calibrate`): add "
            "them, or leave out `covariates`."
        )
    if plan.weight is not None:
        yield "`release` needs records without weights: leave out `weight`."
    if release.noisy_groups & (release.noisy_groups - 1) or release.noisy_groups > plan.groups:
        yield (
            f"`release.noisy_groups` must be a power of two, and no more than the {plan.groups:,} groups that follow "
            "from `expected_units`."
        )
    if (release.unit_records is not None) != (plan.whole_units and plan.federated is None):
        yield (
            '`release.unit_records` and `records_per_unit = "together"` need each other: foldaway can limit a unit\'s '
            "records only if they arrive together. Without both, the release protects records; devices have "
            "`federated.device_records`."
        )


def _arm_faults(plan: Analysis) -> Iterator[str]:
    if not 2 <= len(plan.arms) <= MOST_ARMS:
        yield f"`arms` must have two to {MOST_ARMS} arms with their probabilities."
    if "" in plan.arms:
        yield "`arms` has an arm without a name."
    bad = [arm for arm, share in plan.arms.items() if not 0 < share < 1]
    if bad:
        yield f"the probability of {_listed(bad)} must lie between 0 and 1."
    elif plan.arms and not math.isclose(total := math.fsum(plan.arms.values()), 1, abs_tol=1e-9):
        yield f"the probabilities of `arms` add up to {total:.10g} instead of 1."
    said = [value for values in plan.arms.said.values() for value in values]
    if twice := sorted({value for value in said if said.count(value) > 1}):
        yield f"`arms` has the value {_listed(twice)} more than once: each stands for one arm."
    if none := [arm for arm, values in plan.arms.said.items() if not values]:
        yield f"`arms` has no value for {_listed(none)}."


def _column_faults(plan: Analysis) -> Iterator[str]:
    roles: dict[str, list[str]] = {}
    used = [("arm", plan.arm), ("unit", plan.unit), ("cluster", plan.cluster), ("weight", plan.weight)]
    used += [("outcomes", c) for c in dict.fromkeys(c for outcome in plan.outcomes for c in outcome.columns)]
    used += [("covariates", c) for c in plan.covariates] + [("received", plan.received)]
    used += [] if plan.strata is None else [("strata", plan.strata.column)]
    for role, column in used:
        if column is not None:
            roles.setdefault(column, []).append(role)
    for column, of in roles.items():
        if column == "":
            yield f"`{of[0]}` has a column without a name."
        elif len(of) > 1:
            yield f"the column {column!r} is used more than once ({', '.join(of)}); each column has one role."
    if not plan.outcomes:
        yield "`outcomes` must name at least one."
    most = MOST_COLUMNS if tallies_of(plan) else MOST_COLUMNS_OF_SUMS
    if len(plan.columns) > most:
        yield f"the plan has {len(plan.columns)} columns, including all levels and outcomes; the limit is {most}."


def _segment_faults(plan: Analysis) -> Iterator[str]:
    """Segments cut the arms of sums; a column may be a segment besides what else it is, if it has levels."""
    if plan.segments and plan.release is not None:
        yield "`segments` cannot be combined with `release` yet."
    if plan.segments and plan.federated is not None:
        yield from _segments_of_sites(plan)
    if plan.strata is not None and plan.release is not None:
        yield "`strata` cannot be combined with `release` yet."
    if plan.strata is not None and plan.federated is not None and (plan.unit is None or plan.keeps != SUMS):
        yield (
            "`strata` in a federated plan is for sites that send sums: it needs `unit` and `federated.mode` = "
            '"sums". A device\'s message does not say which stratum it is in.'
        )
    if plan.segments and plan.keeps == MOMENTS:
        yield "`segments` are read from sums by group: leave out `moments`."
    if len(set(plan.segments)) < len(plan.segments):
        yield "`segments` has a column twice."
    strata = None if plan.strata is None else plan.strata.column
    for column in dict.fromkeys(plan.segments):
        roles = {plan.arm: "arm", plan.unit: "unit", plan.cluster: "cluster", plan.weight: "weight"}
        role = (roles | {plan.received: "received"}).get(column)
        if role or column in plan.measured:
            role = role or "outcomes"
            yield f"the column {column!r} is used more than once ({role}, segments); each column has one role."
        elif column in plan.covariates and column not in plan.levels:
            yield f"the segment {column!r} is a covariate without levels: give it `levels`."
    if strata is not None and not plan.grouped and any(each.KIND == "total" for each in plan.outcomes):
        yield "totals within `strata` need `unit`, whose groups give them an error."


def _segments_of_sites(plan: Analysis) -> Iterator[str]:
    """Segments of a federated plan: sites send sums for each level."""
    if plan.unit is None or plan.keeps != SUMS:
        yield (
            "`segments` in a federated plan are for sites that send sums: they need `unit` and `federated.mode` = "
            '"sums". A device\'s message does not say which levels it has.'
        )
    if plan.strata is not None:
        yield (
            "`segments` in a federated plan cannot be combined with `strata`: leave out `strata`, and effects compare "
            "the arms within sites; or make the column of the strata a segment."
        )
    if len(plan.segments) > 1:
        yield (
            "a federated plan has at most one segment: from the sums of several, those of a few units could be worked "
            "out. Choose one, or combine them in a column of its own."
        )
    if plan.unlisted:
        yield f"list the `levels` of the segment {_listed(plan.unlisted)}: sites do not know each other's."


def _baseline_faults(plan: Analysis) -> Iterator[str]:
    """Characteristics are measured before treatment, and summed by arm, exactly."""
    if not plan.baseline:
        return
    if len(set(plan.baseline)) < len(plan.baseline):
        yield "`baseline` has a column twice."
    roles: dict[str | None, str] = dict.fromkeys(plan.measured, "outcomes")
    roles |= {plan.arm: "arm", plan.unit: "unit", plan.cluster: "cluster", plan.weight: "weight"}
    roles |= {plan.received: "received"}
    for column in dict.fromkeys(plan.baseline):
        if column in roles and column not in plan.covariates:  # of which it is said already
            yield f"the column {column!r} is used more than once ({roles[column]}, baseline); each column has one role."
        elif column in plan.segments and not plan.levels_of(column):
            yield f"the characteristic {column!r} is a segment without levels: give it `levels`."
    if len(plan.traits) > MOST_COLUMNS_OF_SUMS:
        yield f"`baseline` has {len(plan.traits)} columns, including all levels; the limit is {MOST_COLUMNS_OF_SUMS}."
    if plan.release is not None:
        yield "`baseline` is told exactly or not at all, and cannot be combined with `release`: leave one of them out."
    if plan.federated is not None and (plan.unit is None or plan.keeps != SUMS):
        yield (
            '`baseline` in a federated plan is for sites that send sums: it needs `unit` and `federated.mode` = "sums".'
            " A device's message has no room for it."
        )


def _look_faults(plan: Analysis) -> Iterator[str]:
    """Planned looks decide on one outcome, in place of verdicts at any time."""
    if plan.looks is None:
        return
    if plan.release is not None:
        yield "`looks` cannot be combined with `release` yet."
    if plan.mode is not None and MODES[plan.mode].at_end:
        yield f'`looks` need effects before the end, which mode "{plan.mode}" does not have: choose another mode.'
    primary = [each for each in plan.outcomes if each.counts_as == "primary"] or list(plan.outcomes[:1])
    if len(primary) != 1 or primary[0].asks not in (None, "better"):
        yield (
            "`looks` decide on one outcome, the primary one or else the first: give no more than one the role "
            '"primary", without a margin that it is not to exceed, and all others the role "secondary".'
        )
    if any(each.counts_as == "guardrail" for each in plan.outcomes):
        yield '`looks` have no test for guardrails yet: give these the role "secondary", without a `margin`.'
    if plan.looks.units is not None and not (plan.one_each or plan.federated is not None):
        yield (
            "`looks.information.units` counts units with one record each. Where they may have several, write how small "
            "the standard error is to be, in `looks.information.error`."
        )
    if plan.looks.events is not None and primary and primary[0].KIND != "survival":
        yield "`looks.information.events` counts the events of a survival outcome: let the looks decide on one."
    if plan.correction == "benjamini-hochberg":
        yield '`looks` bound the chance of any false finding: set `correction` to "holm" or "none".'
    yield from plan.looks.misfits(1 - plan.confidence)


def _name_faults(plan: Analysis) -> Iterator[str]:
    """Names are printed and saved, so they have no line breaks, escape codes or halves of characters."""
    strata = [] if plan.strata is None else [plan.strata.column, *plan.strata.probabilities]
    sites = {} if plan.federated is None else {**plan.federated.probabilities, **plan.federated.joined}
    columns = filter(None, (*sites, plan.arm, plan.unit, plan.cluster, plan.weight, *plan.segments, *strata))
    levels = [level for levels in plan.levels.values() for level in levels]
    told = [text for each in plan.outcomes for text in (each.name, each.label, each.measure)]
    arms = [*plan.arms, *(value for values in plan.arms.said.values() for value in values)]
    names = dict.fromkeys([*columns, *arms, *plan.measured, *told, *plan.covariates, *levels])
    bad = [name for name in names if any(unicodedata.category(c) in _NOT_IN_NAMES for c in name)]
    if bad:
        yield f"names must not contain control characters, but {_listed(bad)} does."


def _estimator_faults(plan: Analysis) -> Iterator[str]:
    for estimator in dict.fromkeys(plan.estimators):
        if estimator not in ESTIMATORS:
            yield f"`moments.estimators` has {estimator!r}; the estimators are {', '.join(ESTIMATORS)}."
        if plan.estimators.count(estimator) > 1:
            yield f"`moments.estimators` has {estimator!r} more than once."
        if estimator in ESTIMATORS:
            yield from ESTIMATORS[estimator].faults(plan)
            if plan.outcomes and not any(estimator in outcome.READ_BY for outcome in plan.outcomes):
                yield f"`moments.estimators` has {estimator!r}, which fits no outcome of the plan."


def _error_faults(plan: Analysis) -> Iterator[str]:
    kinds = {name: word for name, word in ERRORS.items() if word.setting == "errors"}
    if plan.errors and plan.federated is not None:
        ours = " and ".join(name for name, word in kinds.items() if word.suits(plan))
        yield f"a federated plan cannot have `moments.errors`: it has {ours} errors by device."
        return
    for kind in dict.fromkeys(plan.errors):
        if kind not in kinds:
            yield f"`moments.errors` has {kind!r}; the kinds are {', '.join(kinds)} (`moments.bootstrap` has its own)."
        if plan.errors.count(kind) > 1:
            yield f"`moments.errors` has {kind!r} more than once."
        if kind in kinds:
            yield from kinds[kind].faults(plan)
    asked = [kinds[kind] for kind in plan.errors if kind in kinds]
    sources = {kind.source for kind in asked if kind.only_for}
    words = [ESTIMATORS[name] for name in plan.estimators if name in ESTIMATORS]
    words = words or [word for word in ESTIMATORS.values() if word.suits(plan) and sources.intersection(word.sources)]
    unserved = [word.name for word in words if not errors_of(plan, word.name)]
    usable = len(asked) == len(plan.errors) and all(kind.suits(plan) for kind in asked)
    if plan.errors and usable and unserved and plan.bootstrap is None:
        example = "welch" if SUMS in ESTIMATORS[unserved[0]].sources else "HC1"
        yield f"no kind in `moments.errors` serves {_listed(unserved)}: add another kind, for example {example}."


def _listed(names: list[str]) -> str:
    return ", ".join(repr(name) for name in names)
