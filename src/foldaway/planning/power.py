"""``fa.power``: how large a trial must be, what one of a given size can show, or the chance to show it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar, cast, get_args

from foldaway.effects.findings import Findings
from foldaway.effects.looks import design_of, outcome_of
from foldaway.effects.scorecard import CORRECTION_NAMES
from foldaway.errors import EstimateError, joined
from foldaway.inference.looks.planned import LookDesign, mean_share
from foldaway.plan import Outcome, Plan
from foldaway.plan.analysis import TIGHTEST_AT
from foldaway.planning.answer import Power
from foldaway.planning.baseline import Baseline, Known, baseline_of, baselines_of
from foldaway.planning.comparing import GUARDING, Alternative, Asked, CommonDesign, Comparing, Goal, Planned, Wanted

T = TypeVar("T")
By: TypeAlias = T | Mapping[str, T] | None
"""One for all outcomes, or one for each."""

CORRECTIONS = (*CORRECTION_NAMES, "none")

_TWO = {"control": 0.5, "treatment": 0.5}
_GROUPS = 128


def power(
    baseline: Known | Mapping[str, Known] | Findings,
    *,
    plan: Plan | None = None,
    arms: Mapping[str, float] | None = None,
    effect: By[float] = None,
    relative: By[float] = None,
    margin: By[float] = None,
    goal: By[Goal] = None,
    better: By[str] = None,
    records: float | None = None,
    units: float | None = None,
    days: float | None = None,
    power: float | None = None,
    records_per_unit: float | None = None,
    size_cv: float = 0.0,
    records_per_day: float | None = None,
    units_per_day: float | None = None,
    confidence: float | None = None,
    alternative: Alternative = "two-sided",
    correction: str | None = None,
    sequential: bool = False,
) -> Power:
    """How large a trial must be, what one of a given size can show, or the chance to show it.

    Give an effect for the size; a size for the smallest effect; both for the chance. Where a margin is to be kept
    ("not worse", "alike"), a size alone gives the smallest margin.

    Args:
        baseline: What is known of the outcome, as a `Baseline` or a mapping with its settings; or one of these for
            each outcome by name; or the effects of an earlier trial, from which the baselines are read.
        plan: The plan, for its arms, outcomes with `better`, `margin` and `question`, confidence,
            `correction`, `expected_units` and `looks`.
        arms: The arms with their shares, without a plan; two equal ones if left out. The first is the control.
        effect: The effect to be found, in the outcome's own units; one for all, or one for each by name.
        relative: The same as a share of the control's level: 0.05 is 5 %.
        margin: How far off an effect may be, for the goals that have one; above zero.
        goal: "different" (the default), "better" than the control by the margin, "not worse" by more than the margin
            (the default with one), or "alike", within it on both sides: the plan's `question`, if it has one.
        better: "higher" (the default) or "lower".
        records: How many records the whole trial has.
        units: The same in units.
        days: The same in days.
        power: The chance to show what is asked; 0.8 unless said otherwise.
        records_per_unit: The mean number of records of a unit.
        size_cv: The standard deviation of that number over its mean.
        records_per_day: How many records come in a day, of all arms.
        units_per_day: How many new units do.
        confidence: Of the intervals; 0.95 unless plan or caller say otherwise.
        alternative: For the goal "different": "two-sided", "greater" or "less".
        correction: "holm", "benjamini-hochberg" or "none", over outcomes and arms, guardrails ("not worse") apart; the
            plan's, or "none". The first two are reckoned as if one effect had to pass alone, which never is too few.
        sequential: Whether the any-time interval decides, each time that the trial has grown by 5 %.

    Raises:
        EstimateError: The question is not complete, or contradicts itself.

    Example:
        >>> print(power({"level": 0.1}, relative=0.05, records_per_day=10_000))
        The trial needs 115,524 records, about 12 days (control 50 %, treatment 50 %).
        With a chance of 80 % it then finds the effect at 95 % confidence, in a single
        look at the end.
        <BLANKLINE>
        outcome  arm        control    effect  relative  records  days
        ───────  ─────────  ───────  ────────  ────────  ───────  ────
        outcome  treatment   0.1000  +0.00500   +5.00 %  115,524    12
        >>> power({"level": 12.0, "sd": 30.0}, records=50_000)[0].effect.__round__(3)
        0.752
    """
    baselines = _baselines(baseline, plan)
    design = _design(plan, arms, records_per_unit, size_cv, sequential)
    correction = correction or ("none" if plan is None else plan.correction)
    alpha = 1 - (confidence if confidence is not None else 0.95 if plan is None else plan.confidence)
    chance = 0.8 if power is None else power
    if not 0 < alpha <= 0.5:
        raise EstimateError("`confidence` must be a number from 0.5 to below 1.")
    if not alpha < chance < 1:
        raise EstimateError("`power` must lie above 1 − confidence and below 1.")
    rate = _rate(design, records_per_day, units_per_day)
    size = _size(design, rate, records, units, days)
    looks = None if plan is None or plan.looks is None else design_of(plan)
    if looks is not None and plan is not None:
        baselines = _looked_at(plan, baselines, sequential=sequential)
    planned = {} if plan is None else {outcome.name: outcome for outcome in plan.outcomes}
    margins = {name: _margin(name, known, margin, planned.get(name)) for name, known in baselines.items()}
    goals = {name: _goal(name, goal, margins[name], planned.get(name)) for name in baselines}
    # What is said of all outcomes is not said of those that the plan guards, unless it guards all.
    guards = {name for name in baselines if margins[name] is not None and _for(name, margin) is None}
    effects = {
        name: _effect(name, known, effect, relative, goals[name], named=name in guards and len(guards) < len(baselines))
        for name, known in baselines.items()
    }
    silent = [name for name in baselines if size is None and effects[name] is None and goals[name] not in GUARDING]
    if len(silent) == len(baselines):
        raise EstimateError("give the effect to find, absolute or relative, or the size: records, units or days.")
    baselines = {name: known for name, known in baselines.items() if name not in silent}
    # Holm allows for all outcomes that the plan asks about, also for those of which nothing is known beforehand.
    others = sum(not outcome.guardrail for name, outcome in planned.items() if name not in baselines and looks is None)
    tested = {name: goals[name] for name in baselines}
    family = _family(tested, len(design.arms) - 1, correction, others)
    tails = _tails(tested, family, alpha, alternative)
    rows, comparisons = [], []
    for name, known in baselines.items():
        if known.correlation and known.design_effect is None and design.records_per_unit is None:
            raise EstimateError(f"{name}: `correlation` needs `records_per_unit`, the mean number of records per unit.")
        asked = Asked(goals[name], tails[name], _sign(name, better, planned.get(name)), alternative)
        for arm in list(design.arms)[1:]:
            comparing = Comparing(design, arm, known, asked, None if looks is None else _at_looks(looks, asked))
            rows.append(_answer(comparing, name, effects[name], margins[name], size, chance, rate))
            comparisons.append(comparing)
    wanted = {row.wanted for row in rows}
    if len(wanted - {"power"}) > 1 or {"size", "power"} <= wanted:
        raise EstimateError("ask one thing at a time: give the same of effect, margin and size for every outcome.")
    left_out = [f"Left out, since no effect is given: {', '.join(silent)}."] if silent else []
    notes = (*left_out, *_notes(design, baselines.values(), correction, family, rows), *_suggested(plan, design, rows))
    if looks is not None and plan is not None:
        notes = (*notes, *_look_notes(plan, rows, comparisons))
    what: Wanted = next(iter(wanted - {"power"}), "power")
    number = 0 if looks is None else len(looks.at)
    return Power(tuple(rows), what, 1 - alpha, chance, design.arms, sequential, notes, tuple(comparisons), number)


def _looked_at(plan: Plan, baselines: Mapping[str, Baseline], *, sequential: bool) -> dict[str, Baseline]:
    """The outcome that planned looks decide on."""
    if sequential:
        raise EstimateError("a plan with `looks` has no intervals for any number of looks: leave out `sequential`.")
    name = outcome_of(plan).name
    if name not in baselines:
        raise EstimateError(f"the plan's looks decide on {name!r}: give its baseline.")
    return {name: baselines[name]}


def _at_looks(looks: LookDesign, asked: Asked) -> LookDesign:
    """The looks with what the comparison may spend of the error rate."""
    if asked.goal in GUARDING:
        raise EstimateError(f'planned looks show that an arm is different or better; "{asked.goal}" takes one look.')
    two_sided = asked.goal == "different" and asked.alternative == "two-sided"
    return looks._replace(alpha=asked.tail * (2 if two_sided else 1), two_sided=two_sided)


def _look_notes(plan: Plan, rows: Sequence[Planned], comparisons: Sequence[Comparing]) -> Iterator[str]:
    """How much of the trial the looks save, and whether the plan expects this trial."""
    assert plan.looks is not None
    if len(plan.outcomes) > 1:
        yield f"Planned looks decide on {rows[0].outcome} alone; no size is planned for the other outcomes."
    for row, comparing in zip(rows, comparisons, strict=True):
        if row.records is None or row.effect is None or comparing.looks is None:
            continue
        share = mean_share(comparing.looks, comparing.at_one_look.chance(row.records, row.effect, row.margin))
        yield f"If {row.arm} has this effect, the trial uses {100 * share:.0f} % of its information on average."
    largest = max((row.units or 0 for row in rows), default=0)
    if plan.looks.units is not None and largest and plan.looks.units != largest:
        yield (
            f"The plan's looks expect {plan.looks.units:,} units. For a trial of this size, set "
            f"`looks.information.units` to {largest:,}."
        )
    if plan.looks.error is not None and (errors := [row.std_error for row in rows if row.std_error]):
        yield (
            f"At this size the standard error is expected to be {max(errors):.3g}; the plan's looks expect "
            f"{plan.looks.error:g} (`looks.information.error`)."
        )


def _answer(
    comparing: Comparing,
    name: str,
    effect: float | None,
    margin: float | None,
    size: float | None,
    chance: float,
    rate: float | None,
) -> Planned:
    """The one of effect, margin, size and chance that is not given."""
    goal, design, known = comparing.asked.goal, comparing.design, comparing.baseline
    found: float | None = chance
    wanted: Wanted
    if goal in GUARDING and margin is None:
        if size is None:
            raise EstimateError(f'{name}: the goal "{goal}" needs a `margin`, or a size for the smallest one.')
        wanted, effect = "margin", effect or 0.0
        margin = comparing.margin(size, effect, chance)
    elif effect is None and goal not in GUARDING:
        assert size is not None
        wanted = "effect"
        effect = comparing.effect(size, margin or 0.0, chance)
    elif size is None:
        wanted, effect = "size", effect or 0.0
        _require_reachable(name, comparing, effect, margin or 0.0)
        size = comparing.records(effect, margin or 0.0, chance)
    else:
        wanted, effect = "power", effect or 0.0
        found = comparing.chance(size, effect, margin or 0.0)
    why = None
    if size is None or effect is None or (margin is None and goal in GUARDING):
        why = f"{name}: no {wanted} gives {comparing.arm!r} a chance of {100 * chance:g} %."
        found = None
    of_arms, of_units = _whole(design, size)
    return Planned(
        outcome=name,
        arm=comparing.arm,
        control=next(iter(design.arms)),
        goal=goal,
        wanted=wanted,
        level=known.level,
        sd=known.deviation(),
        effect=effect,
        relative=effect / known.level if effect is not None and known.level > 0 else None,
        margin=margin or 0.0,
        power=found,
        records=of_arms,
        units=of_units,
        days=None if rate is None or size is None else size / rate,
        std_error=None if size is None else comparing.error(size, effect or 0.0)[0],
        design_effect=known.inflation(design.records_per_unit or 1.0, design.size_cv),
        explained=known.explained,
        why=why,
    )


def _require_reachable(name: str, comparing: Comparing, effect: float, margin: float) -> None:
    goal, aim = comparing.asked.goal, comparing.asked.aim(margin)
    reached = [away > 0 for away in aim.beyond(effect)]
    if not (all(reached) if aim.both else any(reached)):
        plain = goal in ("different", "better") and not margin
        what = "is zero or on the other side" if plain else "is beyond the margin"
        raise EstimateError(f'{name}: an effect that {what} cannot be shown to be "{goal}", however large the trial.')


def _whole(design: CommonDesign, size: float | None) -> tuple[int | None, int | None]:
    """Records and units, whole ones in every arm."""
    if size is None:
        return None, None
    per_unit = design.records_per_unit
    if per_unit is None:
        return sum(_up(size * share) for share in design.arms.values()), None
    units = sum(_up(size * share / per_unit) for share in design.arms.values())
    return _up(units * per_unit), units


def _up(value: float) -> int:
    """Up to a whole number, but for rounding."""
    return math.ceil(value * (1 - 1e-11))


def _baselines(baseline: Known | Mapping[str, Known] | Findings, plan: Plan | None) -> dict[str, Baseline]:
    if isinstance(baseline, Findings):
        known = baselines_of(baseline)
    elif isinstance(baseline, Baseline) or not any(isinstance(each, Baseline | Mapping) for each in baseline.values()):
        outcomes = ["outcome"] if plan is None else [outcome.name for outcome in plan.outcomes]
        if len(outcomes) > 1:
            raise EstimateError(f"the plan has {len(outcomes)} outcomes: give a baseline for each, by name.")
        return {outcomes[0]: baseline_of(cast("Known", baseline))}
    else:
        known = {name: baseline_of(each) for name, each in cast("Mapping[str, Known]", baseline).items()}
    if not known:
        raise EstimateError("there is no baseline.")
    names = list(known) if plan is None else [outcome.name for outcome in plan.outcomes]
    wanted = {name: known[name] for name in names if name in known}
    if not wanted:
        raise EstimateError(f"no baseline is of an outcome of the plan ({', '.join(names)}).")
    return wanted


def _design(
    plan: Plan | None, arms: Mapping[str, float] | None, per_unit: float | None, size_cv: float, sequential: bool
) -> CommonDesign:
    shares = dict(arms) if arms is not None else dict(_TWO) if plan is None else dict(plan.arms)
    total = sum(shares.values())
    if len(shares) < 2 or not all(0 < share < math.inf for share in shares.values()):
        raise EstimateError("`arms` must name two arms or more, each with a share above 0.")
    if per_unit is not None and not per_unit > 0:
        raise EstimateError("`records_per_unit` must be above 0.")
    if not 0 <= size_cv < math.inf:
        raise EstimateError("`size_cv` must be 0 or more.")
    clustered = (per_unit or 1) != 1 if plan is None else plan.unit is not None and not plan.one_each
    groups = (_GROUPS if clustered else None) if plan is None else plan.groups if plan.grouped else None
    return CommonDesign(
        {arm: share / total for arm, share in shares.items()},
        groups=groups,
        records_per_unit=per_unit if per_unit is not None else None if clustered else 1.0,
        size_cv=size_cv,
        sequential=sequential,
        tightest_at=TIGHTEST_AT if plan is None else plan.tightest_at,
        drawn=True,
    )


def _rate(design: CommonDesign, records: float | None, units: float | None) -> float | None:
    """Records a day."""
    if records is not None and units is not None:
        raise EstimateError("give `records_per_day` or `units_per_day`, not both.")
    if units is not None:
        records = _records_of(design, units, "units_per_day")
    if records is not None and not 0 < records < math.inf:
        raise EstimateError("the number that come in a day must be above 0.")
    return records


def _records_of(design: CommonDesign, units: float, setting: str) -> float:
    if design.records_per_unit is None:
        raise EstimateError(f"`{setting}` needs `records_per_unit`.")
    return units * design.records_per_unit


def _size(
    design: CommonDesign, rate: float | None, records: float | None, units: float | None, days: float | None
) -> float | None:
    """Records of the whole trial, if they are given in any form."""
    given = [each for each in (records, units, days) if each is not None]
    if len(given) > 1:
        raise EstimateError("give one of `records`, `units` and `days`.")
    if not given:
        return None
    if not 0 < given[0] < math.inf:
        raise EstimateError("the size of a trial must be above 0.")
    if units is not None:
        return _records_of(design, units, "units")
    if days is not None:
        if rate is None:
            raise EstimateError("`days` needs `records_per_day` or `units_per_day`.")
        return days * rate
    return records


def _for(name: str, given: By[T]) -> T | None:
    """What is given for an outcome: its own, or the one for all."""
    return given.get(name) if isinstance(given, Mapping) else given


def _margin(name: str, known: Baseline, margin: By[float], outcome: Outcome | None) -> float | None:
    """The margin that is given, or else the plan's."""
    bound = _for(name, margin)
    if bound is not None and not 0 <= bound < math.inf:
        raise EstimateError(f"{name}: `margin` must be 0 or more; `better` says which side is the good one.")
    if bound is not None or outcome is None or outcome.margin is None:
        return bound
    return outcome.margin_at(known.level)


def _goal(name: str, goal: By[Goal], bound: float | None, outcome: Outcome | None) -> Goal:
    """The goal that is given, or else the plan's question, or else what a margin asks for."""
    said: Goal | None = _for(name, goal) or (None if outcome is None else outcome.question)
    if said is not None and said not in get_args(Goal):
        raise EstimateError(f"there is no goal {said!r}; there are {', '.join(get_args(Goal))}.")
    return said or ("different" if bound is None else "not worse")


def _sign(name: str, better: By[str], outcome: Outcome | None) -> int:
    said = _for(name, better) or (None if outcome is None else outcome.better) or "higher"
    if said not in ("higher", "lower"):
        raise EstimateError(f'{name}: `better` must be "higher" or "lower".')
    return 1 if said == "higher" else -1


def _family(goals: Mapping[str, Goal], arms: int, correction: str, others: int) -> int:
    """How many comparisons are corrected together; guardrails are apart."""
    if correction not in CORRECTIONS:
        raise EstimateError(f"there is no correction {correction!r}; there are {', '.join(CORRECTIONS)}.")
    asked = others + sum(goal != "not worse" for goal in goals.values())
    return 1 if correction == "none" else max(arms * asked, 1)


def _tails(goals: Mapping[str, Goal], family: int, alpha: float, alternative: str) -> dict[str, float]:
    """The chance of each outcome's test to err to each side, as `inference.claim` tests it."""
    if alternative not in get_args(Alternative):
        raise EstimateError('`alternative` must be "two-sided", "greater" or "less".')
    sides = {name: 2 if goal == "different" and alternative == "two-sided" else 1 for name, goal in goals.items()}
    return {name: alpha / sides[name] / (1 if goal == "not worse" else family) for name, goal in goals.items()}


def _effect(
    name: str, known: Baseline, effect: By[float], relative: By[float], goal: Goal, *, named: bool
) -> float | None:
    """The assumed absolute effect on an outcome, or None; if `named`, only a mapping that names it gives one."""
    absolute, share = (
        None if named and not isinstance(given, Mapping) else _for(name, given) for given in (effect, relative)
    )
    if absolute is not None and share is not None:
        raise EstimateError(f"{name}: give `effect` or `relative`, not both.")
    if share is not None:
        if known.level <= 0:
            raise EstimateError(f"{name}: a relative effect needs a level above 0; give `effect`.")
        absolute = share * known.level
    if absolute is None:
        return None
    if not math.isfinite(absolute):
        raise EstimateError(f"{name}: the effect must be a finite number.")
    if absolute == 0 and goal == "different":
        raise EstimateError(f"{name}: an effect of zero cannot be found.")
    if known.sd is None and not 0 < known.level + absolute < 1:
        raise EstimateError(f"{name}: with this effect the share would not lie between 0 and 1.")
    return absolute


def _notes(
    design: CommonDesign, known: Collection[Baseline], correction: str, family: int, rows: Sequence[Planned]
) -> Iterator[str]:
    if family > 1 and any(row.goal != "not worse" for row in rows):
        allowed = f"the trial's {family} comparisons ({CORRECTION_NAMES[correction]})"
        yield f"This allows for {allowed}. If several of them have an effect, a smaller trial may be enough."
    untouched = dict.fromkeys(row.outcome for row in rows if row.goal in GUARDING and row.effect == 0)
    if untouched and len(untouched) < len({row.outcome for row in rows}):
        yield f"The effect is not assumed for guarded outcomes: {joined(list(untouched))} is taken to stay as it is."
    groups = design.groups
    if groups is not None and any(each.design_effect is not None for each in known):
        yield (
            f"How much records of one unit are alike was read from {groups} groups of units, so sizes are uncertain by "
            f"about {100 * math.sqrt(2 / (groups - 1)):.0f} %."
        )
    elif design.records_per_unit is None:
        yield (
            "The plan allows for several records of a unit, and these are taken to be independent here. If they are "
            "alike, give `correlation` and `records_per_unit`, or take both from an earlier trial."
        )


def _suggested(plan: Plan | None, design: CommonDesign, rows: Sequence[Planned]) -> Iterator[str]:
    """The number of units to write into the plan, if it is far from what the plan says."""
    largest = max((row.units or 0 for row in rows), default=0)  # none is known without the records of a unit
    said = plan is None or plan.expected_units is not None
    if not largest or (said and 0.5 < largest / design.tightest_at < 2):
        return
    if design.sequential:
        yield (
            f"The any-time interval is tightest at {design.tightest_at:,}. Set `expected_units` in the plan to about "
            f"{largest:,}, and it takes fewer."
        )
    elif plan is not None and plan.grouped:
        yield f"Set `expected_units` in the plan to about {largest:,}: as many groups as leave nobody alone follow."
