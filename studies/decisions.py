"""How often is a verdict wrong when margins are tested again and again while records arrive?

Each question is asked where it is hardest to answer rightly: of an effect that lies on the margin, or of none at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from foldaway.inference.anytime import ENOUGH, anytime_reach, anytime_variance, evidence
from foldaway.inference.levels import Levels, difference_of
from foldaway.inference.welch import Spread, welch
from studies.findings import Findings, counted, options_of, publish
from studies.groups_anytime import CONFIDENCE, EVERY, TIGHTEST_AT, at_looks, draw

NAME = "decisions"
SHARES = (0.5, 0.1)
OUTCOMES = ("conversion 20 %", "conversion 2 %", "lognormal revenue")
LIFT = 0.2
QUESTIONS = ("not worse", "alike", "better", "worse")
WAYS = ("any time", "one look, again and again", "one look at the end")


class Result(NamedTuple):
    """Trials with a wrong verdict by question and way of looking; and of those without an effect, how many were found.

    Attributes:
        wrong: By question, for each of the `WAYS`.
        shown: Trials without an effect that were found to be not worse, at any time.
        records: The median number of records that this took.
    """

    wrong: dict[str, tuple[int, int, int]]
    shown: int
    records: float


class Looks(NamedTuple):
    """Trials by looks: the effect, how far one-sided intervals reach, and whether there is enough for one."""

    effect: Any
    anytime: Any
    single: Any
    enough: Any


def looks_of(draws: Any) -> Looks:
    """Every look at some trials."""
    from scipy.special import stdtrit

    n, sums = at_looks(draws, np.ones_like(draws.y)), at_looks(draws, draws.y)
    squares = at_looks(draws, draws.y**2)
    means = sums / np.maximum(n, 1)
    levels: Levels = welch(Spread(n, n, means[..., None], np.maximum(squares - n * means**2, 0)[..., None, None]))
    found = difference_of(levels, 1)
    reach = anytime_reach(n.sum(axis=-1), CONFIDENCE, TIGHTEST_AT, one_sided=True)
    with np.errstate(invalid="ignore"):
        single = stdtrit(np.maximum(np.nan_to_num(found.df), 1), CONFIDENCE) * np.sqrt(found.variance)
    two = n.min(axis=-1) > 1
    enough = two & (evidence(n, sums, sums, squares) >= ENOUGH)
    return Looks(found.estimate, reach * np.sqrt(anytime_variance(levels, 1)), single, enough)


def claimed(question: str, effect: Any, reach: Any, margin: float) -> Any:
    """Whether an interval that reaches so far decides a question, of an outcome of which less is better."""
    match question:
        case "not worse":
            return effect + reach < margin
        case "alike":
            return (effect + reach < margin) & (effect - reach > -margin)
        case "better":
            return effect + reach < 0
        case _:
            return effect - reach > 0


def study(share: float, outcome: str, trials: int, records: int, seed: int) -> Result:
    """All trials of one cell."""
    wrong = {question: np.zeros(3, dtype=int) for question in QUESTIONS}
    shown, first = 0, []
    for lift in (LIFT, 0.0):
        rng = np.random.default_rng([seed, SHARES.index(share), OUTCOMES.index(outcome), int(lift > 0)])
        at = 20
        for start in range(0, trials, at):
            draws = draw(rng, min(at, trials - start), records, share, outcome, lift)
            margin = draws.effect if lift else LIFT * _level(outcome)
            looks = looks_of(draws)
            for question in QUESTIONS:
                if (question in ("not worse", "alike")) == (lift > 0):  # where it is false
                    ever = claimed(question, looks.effect, looks.anytime, margin) & looks.enough
                    once = claimed(question, looks.effect, looks.single, margin) & looks.enough
                    wrong[question] += [ever.any(axis=1).sum(), once.any(axis=1).sum(), once[:, -1].sum()]
            if not lift:
                found = claimed("not worse", looks.effect, looks.anytime, margin) & looks.enough
                shown += int(found.any(axis=1).sum())
                first += [int(look.argmax() + 1) * EVERY for look in found if look.any()]
    counts = {question: (int(a), int(b), int(c)) for question, (a, b, c) in wrong.items()}
    return Result(counts, shown, float(np.median(first)) if first else math.nan)


def _level(outcome: str) -> float:
    """What the control's outcome is on average."""
    return float(outcome.split()[1]) / 100 if outcome.startswith("conversion") else math.exp(0.5)


def findings(results: dict[tuple[float, str], Result], trials: int, records: int) -> Findings:
    """The table and what it says."""
    rows = [
        [
            outcome,
            f"{share:g}",
            question,
            *(f"{100 * wrong / trials:.1f} %" for wrong in found.wrong[question]),
            f"{100 * found.shown / trials:.0f} %" if question == "not worse" else "",
            f"{found.records:,.0f}" if question == "not worse" and not math.isnan(found.records) else "",
        ]
        for (share, outcome), found in results.items()
        for question in QUESTIONS
    ]
    ours, again, end = (
        [found.wrong[question][way] / trials for found in results.values() for question in QUESTIONS]
        for way in range(len(WAYS))
    )
    error = math.sqrt(0.05 * 0.95 / trials)
    above = sum(share > 0.05 for share in ours)
    return Findings(
        "Verdicts under repeated looks",
        f"""You may ask for an any-time verdict as often as you like. We simulated {trials:,} trials of independent
        records for each row and looked after every {EVERY} records, up to {records:,}. Lower outcomes are better. Where
        the question is “not worse” or “alike”, the treatment raises the outcome (the probability of a conversion) by
        exactly the margin, {100 * LIFT:.0f} % of the control's level, so that either verdict is wrong. Where it is
        “better” or “worse”, there is no effect. Confidence is 95 %. Tests are one-sided; for “alike”, there are two
        one-sided tests.

        The table gives the shares of trials that ever got the wrong verdict: from the any-time test; from the test for
        a single look, used at every look; and from the same test, used once at the end. “Shown” is the share of trials
        without any effect in which “not worse” was found at any time, and the median number of records that this
        took.""",
        ["outcome", "treated", "question", *WAYS, "shown", "after records"],
        rows,
        f"""The any-time test gives a wrong verdict in at most {100 * max(ours):.1f} % of trials: of {len(ours)} shares,
        {above} are above 5 %. The test for a single look, used again and again, is wrong in up to
        {100 * max(again):.0f} %. Used once at the end, it is wrong in {100 * min(end):.1f} to {100 * max(end):.1f} %
        (Monte Carlo error: 1.96 standard errors of {100 * error:.2f} points). The share is below 5 % where the margin
        is too narrow for the number of records.""",
        left=3,
    )


def main(arguments: Sequence[str] = ()) -> None:
    """Run the study."""
    options = options_of(NAME, arguments, trials=2000, records=20_000, seed=1)
    cells = [(share, outcome) for outcome in OUTCOMES for share in SHARES]
    results = {
        cell: study(*cell, options.trials, options.records, options.seed)
        for cell in counted(cells, len(cells), "cells of verdicts")
    }
    publish(findings(results, options.trials, options.records), NAME, options)
