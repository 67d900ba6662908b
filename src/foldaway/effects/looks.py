"""Planned looks at a trial: what each one found, by the boundaries for the information that was really there.

The statistic of a row becomes a z statistic through its p-value, which is Student's, so that an error from few groups
counts for what it is (see `inference.looks`). Several arms share α by Holm's steps: once one of them is shown to
differ, the boundaries of the others are those of fewer tests (Maurer and Bretz, "Multiple testing in group sequential
trials using graphical approaches", Statistics in Biopharmaceutical Research 5, 2013).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from foldaway.effects.effect import Effect
from foldaway.effects.findings import Findings
from foldaway.effects.headline import comparisons
from foldaway.effects.looks_taken import BENEFIT, FUTILE, GO_ON, HARM, HIGHER, LOWER, SHOWN, UNSHOWN, ArmLook, Look
from foldaway.effects.numbers import interval_text, p_relation
from foldaway.errors import EstimateError, TooEarly
from foldaway.inference.intervals import critical
from foldaway.inference.looks.planned import Bounds, LookDesign, bounds_at
from foldaway.inference.looks.stagewise import ended
from foldaway.plan import Outcome, Plan
from foldaway.table import number as number_text
from foldaway.table import places_for

# Between these, a p-value has a z to go on with. Beyond them are the strongest effects, and 1 for great harm.
_LEAST, _MOST = 1e-300, 1 - sys.float_info.epsilon


def outcome_of(plan: Plan) -> Outcome:
    """The outcome that planned looks decide on: the one that is primary, or else the plan's first."""
    return plan.looked_at


def next_look(plan: Plan, taken: Sequence[Look]) -> float | None:
    """At which share of the information the next look is due; None if there is none."""
    assert plan.looks is not None
    if taken and taken[-1].over:
        return None
    reached = taken[-1].fraction if taken else 0.0
    return next((share for share in plan.looks.at if share > reached), None)


def look_at(effects: Findings, taken: Sequence[Look], *, last: bool = False) -> Look | None:
    """The look that is due, or None if the information for it is not there and one was taken before.

    Args:
        effects: The effects as they are now, exactly.
        taken: The looks that were taken.
        last: Whether no more information will come: what is left of α is spent now.

    Raises:
        EstimateError: The plan has no looks.
        TooEarly: No look is due yet; or the effect has no error.
    """
    plan = effects.plan
    if plan.looks is None:
        raise EstimateError("this plan has no `looks`; its verdicts at any time hold however often you look.")
    due = next_look(plan, taken)
    if due is None:
        return None
    rows = [each.lead for each in comparisons(effects) if each.outcome == outcome_of(plan).name]
    if effects.alarm is not None:
        raise EstimateError(f"no look was taken, because its effects could not be trusted. {effects.alarm}")
    why = next((row.why for row in rows if not row.reliable), None)
    if not rows or why:
        raise TooEarly(f"no look was taken, because there is no effect yet. {why or 'There are no records.'}")
    fraction = _fraction(effects, rows)
    before = taken[-1].fraction if taken else 0.0
    if fraction < due and not (last and fraction > before):
        if taken:
            return None
        raise TooEarly(
            f"the first look is due at {100 * due:g} % of the planned information; there is "
            f"{math.floor(100 * fraction)} %."
        )
    return _taken(plan, rows, [*(each.fraction for each in taken), fraction], taken, last=last or fraction >= 1)


def _units(effects: Findings) -> float:
    """How many units all arms have, where these are counted: devices and patients may have many records."""
    ratio = effects.sample_ratio
    return sum(ratio.observed.values()) if ratio.counted == "units" else math.inf


def _fraction(effects: Findings, rows: Sequence[Effect]) -> float:
    """The information so far as a share of the planned; of several arms, that of the one that has least."""
    plan = effects.plan
    assert plan.looks is not None
    if plan.looks.units is not None:
        return min(_units(effects), *(row.n or 0 for row in rows)) / plan.looks.units
    if plan.looks.events is not None:
        bins = plan.looked_at.binning
        curves = (each for each in effects.curves if plan.outcome(each.outcome).binning == bins)
        arms = {each.arm: each.events or 0 for shown in curves for each in shown.curves}
        return sum(arms.values()) / plan.looks.events
    assert plan.looks.error is not None
    return min((plan.looks.error / (row.std_error or math.inf)) ** 2 for row in rows)


def design_of(plan: Plan) -> LookDesign:
    """How the plan's looks were planned."""
    looks = plan.looks
    assert looks is not None
    two_sided = outcome_of(plan).asks is None
    futility = None if looks.futility == "none" else looks.futility
    return LookDesign(tuple(looks.at), 1 - plan.confidence, two_sided, looks.spending, futility, 1 - looks.power)


class _Test(NamedTuple):
    """One arm's test at a look."""

    row: Effect
    sign: int
    z: float


def _taken(plan: Plan, rows: Sequence[Effect], fractions: list[float], taken: Sequence[Look], *, last: bool) -> Look:
    design = design_of(plan)
    tests = {row.arm: _test(plan, row) for row in rows}
    known = {each.arm: each for each in taken[-1].arms if each.found in SHOWN} if taken else {}
    open_ = [arm for arm in tests if arm not in known]
    found: dict[str, ArmLook] = dict(known)
    while open_:  # Holm's steps: each arm that is shown leaves more of α to the others
        steps = len(open_) if plan.correction == "holm" else 1
        bounds = bounds_at(design, fractions, last=last, tests=steps)
        now = {arm: _arm_look(plan, design, tests[arm], fractions, bounds, last=last) for arm in open_}
        shown = [arm for arm in open_ if now[arm].found in SHOWN]
        found |= now
        open_ = [arm for arm in open_ if arm not in shown]
        if not shown or plan.correction != "holm":
            break
    spent = design.alpha if last else design.spent(fractions[-1])
    arms = tuple(found[arm] for arm in tests)
    return Look(outcome=rows[0].outcome, fraction=fractions[-1], spent=spent, last=last, arms=arms)


def _test(plan: Plan, row: Effect) -> _Test:
    """The row's statistic on the scale of z, above 0 where the arm is better."""
    from scipy.special import ndtri

    sign = -1 if outcome_of(plan).better == "lower" else 1
    p = max(row.p_value if row.p_value is not None else 1.0, _LEAST)
    if row.alternative == "two-sided":
        z = -float(ndtri(p / 2)) * (1 if (row.estimate or 0.0) >= 0 else -1) * sign
    else:
        z = -float(ndtri(min(p, _MOST)))
    return _Test(row, sign, z)


def _arm_look(
    plan: Plan, design: LookDesign, test: _Test, fractions: Sequence[float], bounds: Bounds, *, last: bool
) -> ArmLook:
    upper, lower, found = bounds.upper[-1], bounds.lower[-1], GO_ON
    above, below = (HIGHER, LOWER) if outcome_of(plan).better is None else (BENEFIT, HARM)
    if test.z >= upper:
        found = above
    elif design.two_sided and test.z <= -upper:
        found = below
    elif last:
        found = UNSHOWN
    elif test.z <= lower:
        found = FUTILE
    look = ArmLook(
        arm=test.row.arm,
        found=found,
        z=test.z,
        upper=upper if math.isfinite(upper) else None,
        lower=lower if math.isfinite(lower) and not last else None,
    )
    return look if found == GO_ON else _with_ends(plan, design, look, test, fractions, bounds)


def _with_ends(
    plan: Plan, design: LookDesign, look: ArmLook, test: _Test, fractions: Sequence[float], bounds: Bounds
) -> ArmLook:
    """With p-value, estimate and interval by stage-wise ordering, which do not depend on looks that are not taken."""
    row, reach = test.row, 1 - (1 - plan.confidence) * (1 if design.two_sided else 2)
    end = ended(fractions, bounds.upper[:-1], test.z, max(reach, 0.0), two_sided=design.two_sided)
    # What a z of 1 is worth in the outcome's own unit of measure: the row's interval says, by Student's t.
    assert row.estimate is not None
    assert row.std_error is not None
    estimate = row.estimate
    ends = [abs(each - estimate) for each in (row.ci_lower, row.ci_upper) if each is not None]
    finite = [each for each in ends if math.isfinite(each)]
    unit = finite[0] / critical(max(reach, 0.0), math.inf) if finite and reach > 0 else row.std_error
    root = math.sqrt(fractions[-1])

    def effect(drift: float) -> float:
        return estimate + test.sign * (drift * root - test.z) * unit

    low, high = sorted((effect(end.lower), effect(end.upper)))
    if not design.two_sided:
        low, high = (low, math.inf) if test.sign > 0 else (-math.inf, high)
    return msgspec.structs.replace(
        look,
        p_value=end.p_value if design.two_sided else end.p_above,
        estimate=effect(end.estimate),
        ci_lower=low if math.isfinite(low) else None,
        ci_upper=high if math.isfinite(high) else None,
    )


def told_at_the_end(effects: Findings, looks: Sequence[Look]) -> list[Look]:
    """Looks as others are told them once the trial has ended, with what stage-wise ordering makes of the told rows.

    So they say no more than the rows do. An arm that was decided at an earlier look, or whose told row would not be
    found what it was found, has words alone.

    Args:
        effects: The effects, as others are told.
        looks: The looks that were taken.
    """
    told = [each.told() for each in looks]
    if not looks:
        return told
    rows = {each.lead.arm: each.lead for each in comparisons(effects) if each.outcome == looks[-1].outcome}
    arms = [_told_with_ends(effects.plan, looks, each, rows.get(each.arm)) for each in looks[-1].arms]
    return [*told[:-1], msgspec.structs.replace(told[-1], arms=tuple(arms))]


def _told_with_ends(plan: Plan, looks: Sequence[Look], look: ArmLook, row: Effect | None) -> ArmLook:
    """The arm's part of the last look."""
    design, told = design_of(plan), ArmLook(arm=look.arm, found=look.found)
    before = [each for earlier in looks[:-1] if (each := earlier.of(look.arm)) is not None]
    if look in before or look.found == GO_ON or row is None or not row.reliable:
        return told
    test = _test(plan, row)
    uppers = [math.inf if each.upper is None else each.upper for each in (*before, look)]
    beyond = test.z >= uppers[-1] or (design.two_sided and test.z <= -uppers[-1])
    if beyond != (look.found in SHOWN):
        return told
    return _with_ends(plan, design, told, test, [each.fraction for each in looks], Bounds(uppers, []))


def look_sentences(effects: Findings) -> list[str]:
    """The looks that were taken and when the next one is due, each in a sentence."""
    plan = effects.plan
    assert plan.looks is not None
    found = []
    for number, look in enumerate(effects.looks, 1):
        words = [_arm_sentence(effects, look, each) for each in look.arms]
        found.append(
            f"Look {number}, with {100 * look.fraction:.0f} % of the planned information"
            f"{' (the last)' if look.last else ''}: {'; '.join(words)}. By then an error rate of "
            f"{100 * look.spent:.2g} % had been spent, of {100 * (1 - effects.confidence):g} % in all."
        )
    if (due := next_look(plan, effects.looks)) is not None and not effects.final:
        found.append(
            f"The next look is due at {100 * due:g} % of the planned information. Between looks there is no verdict: "
            "intervals and p-values of the effects are for a single look, and do not decide."
        )
    return found


def _arm_sentence(effects: Findings, look: Look, each: ArmLook) -> str:
    name = f"{each.arm}: {each.found}" if len(look.arms) > 1 else each.found
    parts = []
    if each.z is not None:
        bound = "none" if each.upper is None else f"{each.upper:.3f}"
        futile = "" if each.lower is None else f", futility below {each.lower:.3f}"
        parts.append(f"z {each.z:.2f}, boundary {bound}{futile}")
    if each.estimate is not None and each.p_value is not None:
        places = places_for([row.std_error for row in effects if (row.outcome, row.arm) == (look.outcome, each.arm)])
        lower = -math.inf if each.ci_lower is None else each.ci_lower
        interval = interval_text(lower, math.inf if each.ci_upper is None else each.ci_upper, places)
        parts.append(f"effect by stage-wise ordering {number_text(each.estimate, places=places)}")
        parts.append(f"{100 * effects.confidence:g} % interval {interval}, p {p_relation(each.p_value)}")
    return f"{name} ({'; '.join(parts)})" if parts else name
