"""Whether to trust it: the checks, each with a plain word for how it came out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from foldaway.effects import Effects
from foldaway.effects.checks import EITHER, small_counts, titles, together
from foldaway.effects.numbers import p_relation, percent_text, signed, typeset
from foldaway.effects.tipping import tipping_of
from foldaway.inference.balance import CUSTOMARY, Balance, Verdict
from foldaway.inference.loss import WORTH_A_LOOK, Loss
from foldaway.inference.ratio_over_time import LEAST_GROUPS_OVER_TIME
from foldaway.inference.sample_ratio import SUSPICIOUS, SampleRatio
from foldaway.records.faults import CLIPPED
from foldaway.report.drawing.figures import SHAPES, axis_over, axis_row, key_mark, mark_row
from foldaway.report.drawing.markup import Child, Html, html, listed, named, tag
from foldaway.report.page.document import Section, State, badge, card, details, notes, table
from foldaway.report.page.tipping import tipping
from foldaway.table import number

# The share of faulty records up to which no alarm is due if the arms lost them alike.
_HARMLESS = 0.01


class Check(NamedTuple):
    """One check: how it came out, in a word and a sentence, and what is behind it."""

    title: Child
    state: State
    sentence: Child
    more: Html


def trust(effects: Effects, balances: Sequence[Balance] | None) -> Section:
    """Every check that there is, and the notes."""
    checks = [sample_ratio_check(effects), left_out_check(effects)]
    missing = (loss for loss in effects.losses if loss.outcome is not None)
    checks += [missing_check(titles(effects.plan, those), those[0]) for those in together(list(missing))]
    if balances is not None and effects.plan.covariates:
        checks.append(balance_check(effects, balances))
    could = [tipping(effects, each) for each in tipping_of(effects, percent=True)]
    cards = [
        card(title, tag("p", badge(state), " ", sentence), more, kind=f"card check {state}")
        for title, state, sentence, more in checks
    ]
    if could:
        cards.append(card("What could missing outcomes change?", *could))
    also = card("Also worth knowing", notes(effects.notes)) if effects.notes else None
    return Section("trust", "Whether to trust it", html(cards, also))


def sample_ratio_check(effects: Effects) -> Check:
    """Whether the arms' counts fit the plan's probabilities."""
    ratio = effects.sample_ratio
    total = sum(ratio.observed.values())
    planned = {arm: expected / total for arm, expected in ratio.expected.items()} if total else {}
    if effects.plan.strata is None:
        planned = dict(effects.plan.arms)
    rows = [
        [
            named(arm),
            f"{100 * planned[arm]:.2f}\u202f%" if planned else "–",
            f"{100 * seen / total:.2f}\u202f%" if total else "–",
            f"{seen:,}",
            number(ratio.expected[arm], places=0 if ratio.expected[arm].is_integer() else 1),
        ]
        for arm, seen in ratio.observed.items()
    ]
    counts = table("Arms", ["arm", "planned share", "actual share", ratio.counted, "expected"], rows)
    sentence: Child
    state: State = ratio.state
    if not total:
        state, sentence = "open", "There are no records yet."
    elif state == "open":
        sentence = (
            f"Units may have several records, and records have come for fewer than {LEAST_GROUPS_OVER_TIME} groups of "
            "units. That is too few to tell chance from a fault."
        )
    elif state == "passes":
        sentence = f"The arms' {ratio.counted} fit the plan's probabilities."
    elif state == "look":
        sentence = html(
            f"The arms' {ratio.counted} do not fit the plan's probabilities. {EITHER} In the first case no effect can "
            "be trusted. ",
            tag("strong", "Find out which it is."),
        )
    else:
        sentence = html(
            f"The arms' {ratio.counted} do not fit the plan's probabilities. Something other than chance decided who "
            "is counted in which arm: assignment, logging, or records that were lost in one arm. ",
            tag("strong", "Find out why before you trust any effect."),
        )
    plan = effects.plan
    said = _ratio_statistics(ratio, by_stratum=plan.strata is not None, once=plan.release is not None)
    statistics = details("The statistics", tag("p", said))
    return Check("Did the arms get their share?", state, sentence, html(counts, statistics))


def _ratio_statistics(ratio: SampleRatio, *, by_stratum: bool, once: bool) -> str:
    if ratio.p_value is None:
        return "There is no test."
    p = f"p {p_relation(ratio.p_value)}"
    since = {
        "units": ", since units were randomised",
        "weighted records": ": each weighs one over its arm's probability in its stratum, so that arms weigh alike",
    }.get(ratio.counted, "")
    counts = f"The test counts {ratio.counted}{since}."
    if once:
        return f"A test for one look, which allows for the noise: {p}. The check fails below {SUSPICIOUS}. {counts}"
    if ratio.test == "groups":
        return (
            f"A test of the spread between groups of units: {p}. The check asks for a look below {SUSPICIOUS}. "
            f"In large samples this happens in at most one sound trial in a thousand, however often you look. {counts}"
        )
    each = " Each stratum is compared with its own probabilities." if by_stratum else ""
    return (
        f"One over the evidence against the plan's probabilities (a mixture of likelihood ratios): {p}.{each} "
        f"The check fails below {SUSPICIOUS}, which happens in at most one sound trial in a thousand, however often "
        f"you look. {counts}"
    )


def missing_check(outcomes: Sequence[str], loss: Loss) -> Check:
    """Whether the arms lost an outcome, or several that go together, alike."""
    are = "Is " if len(outcomes) == 1 else "Are "
    title = html(are, listed(map(named, outcomes)), " missing equally often in all arms?")
    rows = [[named(arm), f"{n:,}", f"{loss.lost[arm]:,}", _share(loss.lost[arm], n)] for arm, n in loss.records.items()]
    sentence = {
        "passes": "The arms' shares differ by no more than chance would give.",
        "look": "The arms may have lost different shares: chance gives such a difference in fewer than one trial in "
        f"{1 / WORTH_A_LOOK:.0f}. Look into this, because it would bias the effect.",
        "open": "There are too few records or units to tell.",
        "fails": "The arms lost different shares. Those who remain are not comparable, so the effect may come from who "
        "is missing. Find out why before you trust it.",
    }[loss.state]
    if not any(loss.lost.values()):
        sentence = "No record is without it."
    tested = "" if loss.p_value is None else f"Test between the arms: p {p_relation(loss.p_value)}. "
    by = "errors are clustered by groups of units" if loss.test == "groups" else "records are assumed to be independent"
    more = html(
        table("Records without it, by arm", ["arm", "records", "without it", "share"], rows),
        details(
            "The statistics",
            tag("p", f"{tested}The check asks for a look below {WORTH_A_LOOK} and fails below {SUSPICIOUS}; {by}."),
        ),
    )
    return Check(title, loss.state, sentence, more)


def left_out_check(effects: Effects) -> Check:
    """Whether faulty records were left out, and evenly over the arms."""
    title = "Were records left out?"
    total = sum(effects.dropped.values())
    if effects.plan.release is not None:
        return Check(title, "open", "A release does not show how many records were left out.", html())
    if not total and effects.rounded:
        few = f"None, or fewer than {effects.plan.privacy.smallest_cell} of an arm, were left out as faulty."
        return Check(title, "passes", few, html())
    if not total:
        return Check(title, "passes", "No record was left out as faulty.", html())
    none = f"below {effects.plan.privacy.smallest_cell}" if effects.rounded else "0"
    rows = [
        [named(arm), f"{n:,}", f"{lost:,}" if lost else none, _share(lost, n + lost) if lost or none == "0" else "–"]
        for arm, n, lost in ((arm, n, effects.dropped.get(arm, 0)) for arm, n in effects.counts.items())
    ]
    if stray := effects.dropped.get("", 0):
        rows.append(["arm unknown or unread", "–", f"{stray:,}", "–"])
    reasons = [
        [named(f.column), f.rule, named(f.arm) if f.arm else "–", f"{f.records:,}"]
        for f in effects.faults
        if f.rule != CLIPPED
    ]
    records = total + sum(effects.counts.values())
    # Few, and as many in each arm: those cannot move an effect.
    losses = [loss.state for loss in effects.losses if loss.outcome is None]
    alike = "passes" in losses and total <= _HARMLESS * records
    meaning = "The arms' shares differ by no more than chance would give."
    if total > effects.plan.drop_limit * records:
        meaning = "That is more than the plan allows, so no effect is shown: correct the records, or the plan."
    elif {"look", "fails"} & set(losses):
        meaning = "The arms' shares differ by more than chance usually gives. If that is no chance, effects are biased."
    elif not alike:
        meaning = "That is harmless unless it depends on the arm. If it does, effects are biased: compare the shares."
    sentence = (
        f"{'About ' if effects.rounded else ''}{total:,} faulty record{' was' if total == 1 else 's were'} left out "
        f"({_share(total, records)}). {meaning}"
        f"{f' {small_counts(effects.plan)}' if effects.rounded else ''}"
    )
    more = html(
        table("Records left out, by arm", ["arm", "folded", "left out", "share left out"], rows),
        details("The reasons", table("Faults", ["column", "what was wrong", "arm", "records"], reasons, left=3)),
    )
    return Check(title, "passes" if alike else "look", sentence, more)


def balance_check(effects: Effects, balances: Sequence[Balance]) -> Check:
    """Whether the arms were alike before treatment."""
    title = "Were the arms alike beforehand?"
    if not balances:
        return Check(title, "open", "There are too few records yet.", html())
    state, sentence = _balance_sentence(balances)
    return Check(title, state, sentence, html(_love_plot(balances), _balance_table(balances)))


# What the worst verdict that there is means: before the columns that it is about, and after them.
_MEANINGS: dict[Verdict, tuple[State, str, str]] = {
    "uneven": (
        "look",
        "are further from zero than chance explains: ",
        ". If these columns were measured before treatment, ask how arms were assigned.",
    ),
    "small": (
        "look",
        f"are small, none beyond {CUSTOMARY} standard deviations, but more than chance explains: ",
        ". They hardly move the effects. Even so, if these columns were measured before treatment, ask how arms were "
        "assigned.",
    ),
    "open": (
        "open",
        f"are beyond {CUSTOMARY}: ",
        ". Whether this is more than chance depends on which records belong to the same unit, which this plan does not "
        'keep: leave out `moments`, or promise `records_per_unit = "together"`.',
    ),
}


def _balance_sentence(balances: Sequence[Balance]) -> tuple[State, Html]:
    """The worst verdict that there is, and what it means."""
    for verdict, (state, before, after) in _MEANINGS.items():
        if those := [each for each in balances if each.verdict == verdict]:
            columns = named(", ".join(dict.fromkeys(each.covariate for each in those)))
            return state, html(f"{len(those)} of {len(balances)} differences {before}", columns, after)
    if chance := sum(each.verdict == "chance" for each in balances):
        return "passes", html(
            f"{chance} of {len(balances)} differences are beyond {CUSTOMARY}, as chance alone would give in a trial of "
            "this size. The adjusted estimates allow for them."
        )
    what = "Nothing that the covariates predict" if balances[0].predicted else "No covariate"
    return "passes", html(f"{what} differs between arms by more than {CUSTOMARY} standard deviations.")


def _love_plot(balances: Sequence[Balance]) -> Html:
    arms = list(dict.fromkeys(each.arm for each in balances))
    by_covariate: dict[str, list[Balance]] = {}
    for each in balances:
        by_covariate.setdefault(each.covariate, []).append(each)
    axis = axis_over((*(each.difference for each in balances), 1.5 * CUSTOMARY), symmetric=True)
    rows = [
        tag(
            "li",
            tag("span", named(covariate), class_="label"),
            mark_row(
                axis,
                [(arms.index(each.arm), each.difference) for each in those],
                (-CUSTOMARY, CUSTOMARY),
                title=covariate,
                description=", ".join(f"{each.arm} {_difference(each)}" for each in those),
            ),
        )
        for covariate, those in by_covariate.items()
    ]
    legend = [tag("li", key_mark(number), named(arm)) for number, arm in enumerate(arms)]
    more = " (shapes repeat)" if len(arms) > SHAPES else ""
    caption = html(
        f"Distance of each arm from the control, in standard deviations of the {_subject(balances)}. "
        f"The dashed lines mark ±{CUSTOMARY}{more}."
    )
    ends = tag("li", tag("span", class_="label"), axis_row(axis), class_="ends")
    return tag(
        "figure",
        tag("figcaption", caption),
        tag("ul", legend, class_="legend", aria_label="Arms"),
        tag("ul", rows, ends, class_="rows love"),
    )


_SO: dict[Verdict, str] = {
    "even": "even",
    "small": "small, but more than chance",
    "chance": "within chance",
    "uneven": "more than chance",
    "open": "unknown",
}


def _balance_table(balances: Sequence[Balance]) -> Html:
    rows = [
        [
            named(each.covariate),
            named(each.arm),
            typeset(number(each.mean)),
            typeset(number(each.control_mean)),
            _difference(each),
            typeset(number(each.chance, 2)),
            _SO[each.verdict],
        ]
        for each in balances
    ]
    header = [_subject(balances), "arm", "mean", "mean in control", "difference", "by chance", "so"]
    return details(
        "The statistics",
        tag(
            "p",
            "The difference is the standardised mean difference: the difference between the means, divided by the root "
            "mean square of the two standard deviations (Austin 2009). “By chance” is the standard deviation that "
            "randomisation alone gives it. ",
            "A prediction is what the covariates predict of an outcome; the covariates themselves are not kept."
            if balances[0].predicted
            else "For a level of a categorical covariate, the mean is the share of records that have it.",
        ),
        table("Covariate balance", header, rows, left=2),
    )


def _subject(balances: Sequence[Balance]) -> str:
    return "prediction" if balances[0].predicted else "covariate"


def _difference(each: Balance) -> str:
    if math.isinf(each.difference):
        return "∞" if each.difference > 0 else "−∞"
    return typeset(signed(number(each.difference, places=3)))


def _share(part: int, whole: int) -> str:
    return typeset(percent_text(part / whole if whole else math.nan).removeprefix("+"))
