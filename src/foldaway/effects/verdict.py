"""What a comparison comes to, in a word that needs no statistics, by the row that it leads with.

A verdict is for a single look at the data. `anytime` is the verdict that holds however often one looks; where the two
differ, the first is right only if nobody has looked before. What holds at any time holds at a single look too, and that
an arm is worse is said before anything that softens it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from foldaway.effects.effect import Effect
from foldaway.effects.findings import Findings
from foldaway.effects.headline import Comparison, comparisons
from foldaway.effects.looks_taken import GO_ON, UNSHOWN, Found
from foldaway.inference.intervals import corrected, critical
from foldaway.inference.rounding import two_digits
from foldaway.plan import Outcome

Word = Literal[
    "better",
    "worse",
    "worse within margin",
    "higher",
    "lower",
    "not worse",
    "alike",
    "not decided yet",
    "no verdict",
    Found,
]

UNDECIDED: Word = "not decided yet"
NONE: Word = "no verdict"
HARMED: Word = "worse"
WITHIN: Word = "worse within margin"
_OPEN = (UNDECIDED, NONE, GO_ON, UNSHOWN)

# An effect closer than so many standard errors to what it is compared with may lie on either side of it, and says
# nothing of when that will be clear.
_TELLING = 1.0


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One arm against the control, for one outcome.

    Attributes:
        outcome: The outcome's name.
        label: What people read in its place.
        measure: Its unit of measure; empty if the plan has none.
        arm: The arm.
        control: What it is compared with.
        question: What the plan asks: whether the arm is different, higher or lower, better, not worse, or alike.
        margin: The margin of that question in the outcome's own unit of measure, if it has one.
        estimator: The estimator that leads.
        se_kind: Its kind of error.
        control_level: The control's level.
        level: The arm's level.
        estimate: The effect.
        ci_lower: Where its interval begins, for a single look.
        ci_upper: Where it ends.
        anytime_ci_lower: Where the interval begins that holds however often one looks.
        anytime_ci_upper: Where that ends.
        p_value: The p-value of what is asked, corrected for several comparisons as the plan says.
        verdict: The verdict, for a single look.
        anytime: The verdict that holds however often one looks.
        words: The verdict as people read it: the stronger finding of the two; with “, one look” where it holds for a
            single look alone, and without “yet” once the trial has ended.
        why: Why there is no verdict, or none that holds at any time.
        more_records: About how many more records it takes until a verdict holds at any time (where there is no such
            test, for a single look), if the effect stays as it is; None if it holds, or if that cannot be told. Of a
            ended trial, how many it would have taken.
    """

    outcome: str
    label: str
    measure: str
    arm: str
    control: str
    question: str
    margin: float | None
    estimator: str
    se_kind: str
    control_level: float | None
    level: float | None
    estimate: float | None
    ci_lower: float | None
    ci_upper: float | None
    anytime_ci_lower: float | None
    anytime_ci_upper: float | None
    p_value: float | None
    verdict: Word
    anytime: Word
    words: str
    why: str | None = None
    more_records: int | None = None

    @property
    def decided(self) -> bool:
        """Whether it is, at a single look."""
        return self.verdict not in _OPEN

    @property
    def holds(self) -> bool:
        """Whether the verdict as people read it holds however often one looks."""
        return self.decided and self.anytime in (self.verdict, HARMED)

    @property
    def shown(self) -> Word:
        """The verdict that people read, without what is said of looks."""
        return self.anytime if self.holds else self.verdict


# What a verdict has of the row that leads.
_OF_ROW = set(Verdict.__struct_fields__) & {*Effect.__struct_fields__, "level"} - {"p_value", "why"}


def verdicts_of(effects: Findings) -> list[Verdict]:
    """A verdict for each comparison, in the order of the plan.

    That a guardrail is harmed, or an effect larger than its margin, is corrected for there being several of these.
    """
    those = comparisons(effects)
    leads = [each.lead for each in those]
    once = _against([row.p_against for row in leads], effects.plan.correction)
    ever = _against([row.anytime_p_against for row in leads], effects.plan.correction)
    return [_verdict(effects, each, *against) for each, *against in zip(those, once, ever, strict=True)]


def _against(p: Sequence[float | None], method: str) -> list[float | None]:
    known = iter(corrected([each for each in p if each is not None], method))
    return [None if each is None else next(known) or each for each in p]


def _verdict(effects: Findings, comparison: Comparison, once: float | None, ever: float | None) -> Verdict:
    row = comparison.lead
    outcome = effects.plan.outcome(row.outcome)
    p = row.p_value if row.p_adjusted is None else row.p_adjusted
    at_any_time = row.anytime_p_value if row.anytime_p_adjusted is None else row.anytime_p_adjusted
    alpha = 1 - effects.confidence
    shown, against = _below(at_any_time, alpha), _below(ever, alpha)
    said = (
        _word(outcome, row, shown or _below(p, alpha), against or _below(once, alpha)),
        _word(outcome, row, shown, against),
    )
    why = row.anytime_why
    if effects.plan.looks is not None:
        said, why = (word := _at_looks(effects, row), word), _why_at_looks(effects, row, word)
    if doubt := row.why if not row.reliable else doubt_of(effects, row.outcome):
        said, why = (NONE, NONE), doubt
    return Verdict(
        **{name: getattr(row, name) for name in _OF_ROW},
        label=outcome.title,
        measure=outcome.measure,
        question=outcome.asks or "different",
        margin=_margin(outcome, row),
        p_value=p,
        verdict=said[0],
        anytime=said[1],
        words=_words(*said, final=effects.final) + _beyond(outcome, row, said[1]),
        why=why,
        more_records=None
        if NONE in said or effects.plan.looks is not None
        else _more(row, said, p, at_any_time, effects.confidence),
    )


def _at_looks(effects: Findings, row: Effect) -> Word:
    """What the last planned look has found; the other outcomes have no verdict."""
    last = effects.looks[-1] if effects.looks else None
    found = last.of(row.arm) if last is not None and last.outcome == row.outcome else None
    if found is None:
        return NONE
    return UNSHOWN if found.found == GO_ON and effects.final else found.found


def _why_at_looks(effects: Findings, row: Effect, word: Word) -> str | None:
    if word != NONE:
        return None
    if row.outcome != effects.plan.looked_at.name:
        return "Planned looks decide on the primary outcome alone."
    return "No planned look has been taken yet: `foldaway look` takes the one that is due."


def _margin(outcome: Outcome, row: Effect) -> float | None:
    """What the row was compared with; the plan's margin until there is a row, and None if that is a percentage."""
    return abs(row.threshold) or (None if isinstance(outcome.margin, str) else outcome.margin)


def _words(once: Word, ever: Word, *, final: bool) -> str:
    if final and once == UNDECIDED:
        return once.removesuffix(" yet")
    if once == ever or once in _OPEN:
        return once
    return ever if ever == HARMED else f"{once}, one look"


def _beyond(outcome: Outcome, row: Effect, ever: Word) -> str:
    """That what is shown not to be worse is more: the interval for any number of looks leaves out zero besides.

    That interval is wide enough at each look for some guardrails to be judged so side by side.
    """
    end = row.anytime_ci_lower if outcome.better == "higher" else row.anytime_ci_upper
    if ever != "not worse" or end is None or (end <= 0) == (outcome.better == "higher") or end == 0:
        return ""
    return f", and clearly {outcome.better}"


def doubt_of(effects: Findings, outcome: str) -> str | None:
    """Why effects on an outcome are not to be trusted, whatever they say."""
    if not effects.sample_ratio.ok:
        return f"The arms did not get their share of the {effects.sample_ratio.counted}, so no effect can be trusted."
    grouped = effects.plan.grouped  # faulty records of a unit may come together
    for loss in effects.losses:
        if loss.state == "fails" and (loss.outcome == outcome or (loss.outcome is None and not grouped)):
            return "The arms lost different shares of it, so the effect may come from who is missing."
    return None


def _below(p: float | None, alpha: float) -> bool:
    return p is not None and p < alpha


def _word(outcome: Outcome, row: Effect, shown: bool, against: bool) -> Word:
    """What tests say: whether they show what is asked, and whether the opposite."""
    if row.estimate is None or not (shown or against):
        return UNDECIDED
    match outcome.asks:
        case "not worse" if against:
            return WITHIN if shown else _direction(outcome, row.estimate)
        case "not worse" | "alike" | "better" as asked if shown:
            return asked
        case _:
            return _direction(outcome, row.estimate)


def _direction(outcome: Outcome, estimate: float) -> Word:
    higher = estimate > 0
    if outcome.better is None:
        return "higher" if higher else "lower"
    return "better" if higher == (outcome.better == "higher") else "worse"


def _more(
    row: Effect, said: tuple[Word, Word], p: float | None, at_any_time: float | None, confidence: float
) -> int | None:
    """About how many more records it takes, if the effect stays as it is and the error goes on shrinking by 1/√n.

    With the distance d to what is to be refuted and an interval that reaches r to that side, it is n ((r/d)² − 1). A
    correction that multiplies a p-value by k moves the end of an any-time interval from z to √(z² + 2 log k) errors.
    """
    if UNDECIDED not in said or row.estimate is None or not row.std_error or row.epsilon is not None:
        return None
    # How far the estimate lies on the side that is to be shown.
    sides = {"greater": row.estimate - row.threshold, "less": row.threshold - row.estimate}
    sides["within"] = row.threshold - abs(row.estimate)
    distance = sides.get(row.alternative, abs(row.estimate))
    if distance < _TELLING * row.std_error:
        return None
    ends = (row.anytime_ci_lower, row.anytime_ci_upper)
    reaches = [abs(end - row.estimate) for end in ends if end is not None and math.isfinite(end)]
    if reaches and row.anytime_p_value and at_any_time:
        further = 2 * math.log(at_any_time / row.anytime_p_value) * row.std_error**2
        times = (reaches[0] ** 2 + further) / distance**2
    elif said[0] == UNDECIDED and row.df is not None and row.p_value and p:
        level = (1 - confidence) * row.p_value / p * 2 / (2 if row.alternative == "two-sided" else 1)
        times = (critical(1 - min(level, 1.0), row.df) * row.std_error / distance) ** 2
    else:
        return None
    more = (row.n or 0) * (times - 1)
    return int(two_digits(more)) if math.isfinite(more) and more >= 1 else None
