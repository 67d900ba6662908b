"""What to do, in one sentence, and the rule that decided: for whoever reads nothing else.

The rule is the plan's. A *primary* outcome is one that the arm is to improve, a *guardrail* one that it must not harm,
and a *secondary* one informs and decides nothing. An arm is ready once a primary outcome is shown to be what the plan
asks of it, no primary outcome and no guardrail is shown to be worse, and every guardrail with a margin is shown to stay
within it. As often as one of the primary outcomes is wrongly shown to be better, so often the sentence is wrong, and
that is what the correction for several comparisons bounds; guardrails must all hold, which needs no correction (Berger
1982). A trial with guardrails alone is ready once they hold.

Before the end, only what holds however often one looks decides; but no arm is shipped while an outcome that decides is
worse at a single look. At the end, or where there is no such test, what holds at a single look decides, and the
sentence says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from foldaway.effects.findings import Findings
from foldaway.effects.verdict import HARMED, NONE, Verdict, verdicts_of
from foldaway.errors import joined, many
from foldaway.plan import Plan

Choice = Literal["ship", "do not ship", "not yet", "undecided"]

_HELD = ("not worse", "alike", "better", "worse within margin")
_MOST_NAMED = 3
_NO_BETTER = "the plan does not say which way is better"


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What to do with an arm.

    Attributes:
        arm: The arm.
        choice: ``"ship"``, ``"do not ship"``, ``"not yet"``, or ``"undecided"``: nothing more is to come, or the plan
            does not say what it takes.
        sentence: The choice and why, as people read it.
        rule: What it takes to ship, by this plan.
    """

    arm: str
    choice: Choice
    sentence: str
    rule: str


def decisions_of(effects: Findings, records_per_day: float | None = None) -> list[Decision]:
    """A decision for each arm but the control; none before there is any effect.

    Args:
        effects: The effects, with the verdicts that they come to.
        records_per_day: How many records come in a day, if that is known: it turns records into days.
    """
    by_arm: dict[str, list[Verdict]] = {}
    for said in verdicts_of(effects):
        by_arm.setdefault(said.arm, []).append(said)
    several, rule = len(by_arm) > 1, rule_of(effects.plan)
    found = []
    for arm, those in by_arm.items():
        choice, reason = _choose(effects, those, records_per_day)
        what = {"ship": f"Ship {arm if several else 'it'}", "do not ship": f"Do not ship {arm if several else 'it'}"}
        what |= {"not yet": f"Not yet{f' ({arm})' * several}", "undecided": f"Undecided{f' ({arm})' * several}"}
        found.append(Decision(arm=arm, choice=choice, sentence=f"{what[choice]}: {reason}.", rule=rule))
    return found


def rule_of(plan: Plan) -> str:
    """What it takes to ship, in a sentence; empty where the plan does not say which outcomes decide.

    Example:
        >>> from foldaway.plan import Mean
        >>> outcomes = [Mean("revenue", better="higher"), Mean("complaints", better="lower", margin=0.1)]
        >>> rule_of(Plan(name="t", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=outcomes))
        'The rule: ship if revenue is better and complaints is not worse by more than 0.1.'
    """
    primary = [each for each in plan.outcomes if each.counts_as == "primary"]
    guardrails = [each for each in plan.outcomes if each.counts_as == "guardrail"]
    if not primary and not guardrails:
        return ""
    wanted = [f"{each.title} is {each.asks if each.asks in ('alike', 'not worse') else 'better'}" for each in primary]
    parts = [joined(wanted, "or") + ", and none of these is worse" * (len(wanted) > 1)] if wanted else []
    within = [
        f"{each.title} is not worse by more than {each.margin_text}" for each in guardrails if each.margin is not None
    ]
    bare = [f"{each.title} is not shown to be worse" for each in guardrails if each.margin is None]
    return f"The rule: ship if {joined([*parts, *within, *bare])}."


def _choose(effects: Findings, said: Sequence[Verdict], records_per_day: float | None) -> tuple[Choice, str]:
    roles = {each.name: each.counts_as for each in effects.plan.outcomes}
    primary = [each for each in said if roles[each.outcome] == "primary"]
    guardrails = [each for each in said if roles[each.outcome] == "guardrail"]
    deciding = [*primary, *guardrails]
    if effects.looks and not deciding:
        return _at_looks(effects, next(each for each in said if each.outcome == effects.plan.looked_at.name))
    if not deciding:
        shown = [f"{each.label} is {each.shown}" for each in said if each.decided and _counts(effects, each)]
        what = joined(shown[:_MOST_NAMED]) if shown else "nothing is shown to differ" + " yet" * (not effects.final)
        return "undecided", f"{what}; {_NO_BETTER}"
    if effects.looks and deciding[0].verdict != NONE:
        return _at_looks(effects, deciding[0])
    if harmed := [each for each in deciding if each.shown == HARMED and _counts(effects, each)]:
        return "do not ship", f"{_named(harmed)} {_is(harmed)} worse{_looks(effects, harmed)}"
    vetoed = next((each for each in deciding if each.verdict == NONE), None)
    if vetoed is not None:
        reason = (vetoed.why or "its effect cannot be told").rstrip(".")
        return ("undecided" if effects.final else "not yet"), f"{vetoed.label} has no verdict. {reason}"
    gains = [each for each in primary if each.decided and _counts(effects, each)]
    gains = [each for each in gains if each.shown in ("better", "alike", "not worse")]
    open_ = [each for each in guardrails if each.margin is not None]
    open_ = [each for each in open_ if each.anytime not in _HELD]
    open_ = [each for each in open_ if each.shown not in _HELD or not _counts(effects, each)]
    doubtful = [each for each in deciding if each.shown == HARMED]  # at one look, which alone holds nothing back
    if (gains or not primary) and not open_ and doubtful:
        found = "".join(f"{each.label} is {_as_found(each)}, " for each in gains[:_MOST_NAMED]) + "but " * bool(gains)
        return "not yet", f"{found}{_named(doubtful)} {_is(doubtful)} worse{_looks(effects, doubtful)}"
    if (gains or not primary) and not open_:
        parts = [f"{each.label} is {_as_found(each)}" for each in gains[:_MOST_NAMED]]
        if guardrails:
            within = any(each.shown == "worse within margin" for each in guardrails)
            parts.append("every guardrail stays within its margin" if within else "no guardrail is worse")
        return "ship", f"{joined(parts)}{_looks(effects, [*gains, *guardrails])}"
    waiting = [*([] if gains else primary), *open_]
    if effects.final:
        return "undecided", f"{_named(waiting)} {_is(waiting)} not decided, and the trial has ended"
    good = f"{_named(gains)} {_is(gains)} better, but " if gains else ""
    return "not yet", f"{good}{_named(waiting)} {_is(waiting)} not decided{_wait(waiting, records_per_day)}"


def _at_looks(effects: Findings, said: Verdict) -> tuple[Choice, str]:
    """What to do by the last planned look: the primary outcome alone decides."""
    look, name = effects.looks[-1], said.label
    share = f"with {100 * look.fraction:.0f} % of the planned information"
    match said.verdict:
        case "stop for benefit":
            return "ship", f"{name} is shown to be better, {share}"
        case "stop for harm":
            return "do not ship", f"{name} is shown to be worse, {share}"
        case "stop, it is higher" | "stop, it is lower" as word:
            return "undecided", f"{name} is shown to be {word.split()[-1]}, {share}; {_NO_BETTER}"
        case "stop for futility":
            return "do not ship", f"going on is futile, since a benefit in {name} is unlikely to be shown, {share}"
        case "go on" if not effects.final:
            return "not yet", f"go on, since {name} has not crossed a boundary, {share}"
        case _:
            return "undecided", f"{name} is not shown to be better, and the looks are over"


def _counts(effects: Findings, said: Verdict) -> bool:
    """Whether a verdict decides: it holds however often one looks, or no test that would allow it will ever come."""
    plan = effects.plan
    several = (
        plan.outcome(said.outcome).level in ("mean", "share") and not plan.of_devices_sums and plan.release is None
    )
    return said.holds or effects.final or not several


def _looks(effects: Findings, those: Sequence[Verdict]) -> str:
    return ", if this is the only look" if any(each.decided and not each.holds for each in those) else ""


def _as_found(said: Verdict) -> str:
    """In the direction that was found, where the question was whether it is better."""
    if said.shown != "better" or said.estimate is None:
        return said.shown
    return "higher" if said.estimate > 0 else "lower"


def _wait(waiting: Sequence[Verdict], records_per_day: float | None) -> str:
    """About how much longer the slowest takes, where that can be told of all."""
    more = [each.more_records for each in waiting]
    if not more or None in more:
        return ""
    records = max(each for each in more if each is not None)
    if records_per_day:
        days = max(round(records / records_per_day), 1)
        return f", about {many(days, 'more day')} if the effect stays as it is"
    return f", about {many(records, 'more record')} if the effect stays as it is"


def _named(those: Sequence[Verdict]) -> str:
    names = [each.label for each in those]
    return joined(
        names if len(names) <= _MOST_NAMED else [*names[: _MOST_NAMED - 1], f"{len(names) - 2} more outcomes"]
    )


def _is(those: Sequence[Verdict]) -> str:
    return "is" if len(those) == 1 else "are"
