"""What was found: a sentence for each comparison, the effects as a forest plot, and every number one click away."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby

from foldaway.effects import Effect, Effects
from foldaway.effects.effect import defined
from foldaway.effects.effects import reasons
from foldaway.effects.headline import Comparison, comparisons, tested, why
from foldaway.effects.numbers import (
    interval_text,
    p_text,
    percent_text,
    relative_interval_text,
    relative_tells,
    relative_text,
    signed,
    typeset,
)
from foldaway.effects.released import release_notes
from foldaway.effects.verdict import NONE, Verdict
from foldaway.inference.bootstrap import SHARES, DistributionForm
from foldaway.plan.vocabulary import DIFFERENCE, ERRORS, ESTIMATORS, SUMS
from foldaway.report.drawing.figures import axis_over, axis_row, box_row
from foldaway.report.drawing.markup import Html, html, named, tag
from foldaway.report.page.document import Section, badge, card, details, table
from foldaway.report.page.forest import forest
from foldaway.report.page.survival import survival
from foldaway.table import number, places_for

Spreads = Mapping[tuple[str, str], DistributionForm]
"""The spread of the bootstrap that a comparison is shown with, by outcome and arm."""

_SIGNS = {
    "better": ("good", "✓"),
    "not worse": ("good", "✓"),
    "alike": ("good", "="),
    "worse": ("fails", "!"),
    "worse within margin": ("look", "!"),
    "higher": ("higher", "▲"),
    "stop for benefit": ("good", "✓"),
    "stop for harm": ("fails", "!"),
    "stop, it is higher": ("higher", "▲"),
    "stop, it is lower": ("lower", "▼"),
    "stop for futility": ("look", "○"),
    "lower": ("lower", "▼"),
}


def found(effects: Effects, spreads: Spreads | None) -> Section:
    """A card for each outcome, with all arms in it; no spreads where only the effects are here, which have none."""
    judged = zip(comparisons(effects), effects.verdicts(), strict=True)
    cards = [_card(effects, list(those), spreads) for _, those in groupby(judged, key=lambda each: each[0].outcome)]
    if not any(row.estimate is not None for row in effects):
        why_not = " ".join(reasons(effects, [])) if any(effects.counts.values()) else "No record has arrived."
        return Section("found", "What was found", tag("p", f"There is nothing to show yet. {why_not}"))
    before = []
    if not effects.sample_ratio.ok:
        doubt = (
            " The arms did not get their share, so differences between them need not be effects of the treatment. Read "
            "what follows as what the numbers say, not as what is true."
        )
        before.append(tag("p", badge("fails"), doubt))
    if effects.plan.release is not None:
        before.append(tag("p", [f"{note} " for note in release_notes(effects.plan, effects.rows)]))
    return Section("found", "What was found", html(before, tag("div", cards, class_="cards")))


def _card(effects: Effects, judged: Sequence[tuple[Comparison, Verdict]], spreads: Spreads | None) -> Html:
    those = [each for each, _ in judged]
    leads = [each.lead for each in those]
    sentences = [tag("p", sentence(effects, *each), class_="finding") for each in judged]
    more = [
        details(
            ["All numbers", [": ", named(each.arm)] if len(those) > 1 else None], _all_numbers(effects, each, spreads)
        )
        for each in those
    ]
    labels = [html(named(lead.arm)) for lead in leads]
    plot = forest(effects, leads, labels)
    drawn = [survival(effects, each) for each in effects.curves if each.outcome == those[0].outcome]
    return card(named(effects.heading(those[0].outcome)), sentences, plot, drawn, more)


def mark(said: Verdict) -> Html:
    """The verdict in a word or two, with a sign of its own: colour alone says nothing."""
    kind, sign = _SIGNS.get(said.shown, ("unclear", "○"))
    text = said.words
    return tag(
        "span",
        tag("span", sign, aria_hidden="true"),
        f" {text[:1].upper()}{text[1:]}",
        class_=f"badge {kind}",
    )


def sentence(effects: Effects, comparison: Comparison, said: Verdict) -> Html:
    """What a comparison came to, for a reader who is no statistician."""
    lead = comparison.lead
    places = places_for([lead.std_error])
    outcome, arm, control = (tag("b", named(name)) for name in (said.label, lead.arm, lead.control))
    if lead.estimate is None:
        return html(mark(said), html(" The effect of ", arm, " on ", outcome, f" is not known yet. {lead.why}"))
    if not lead.reliable:
        effect = typeset(signed(number(lead.estimate, places=places)))
        text = html(" The effect of ", arm, " on ", outcome, f" is {effect}, but its precision is unknown. ")
        return html(mark(said), text, lead.why)
    apart = f"{typeset(number(abs(lead.estimate), places=places))} {'lower' if lead.estimate < 0 else 'higher'}"
    return html(
        mark(said),
        html(" Under ", arm, ", ", outcome, f" was {apart} than under ", control, _relative(lead)),
        f". The data are compatible with a true difference {_between(effects, lead, places)}. ",
        _meaning(effects, lead, said, places),
    )


def _relative(row: Effect) -> str:
    level = typeset(number(row.control_level))
    if row.relative is None or not relative_tells(row):
        return f" ({level})"
    share = typeset(percent_text(abs(row.relative)).removeprefix("+"))
    return f" ({level}), a {'rise' if row.relative > 0 else 'fall'} of {share}"


def _between(effects: Effects, row: Effect, places: int | None) -> str:
    ends = defined(row.ci_lower), defined(row.ci_upper)
    low, high = (None if end is None else typeset(signed(number(end, places=places))) for end in ends)
    coverage = 2 * effects.confidence - 1 if row.alternative == "within" else effects.confidence
    covers = f"({100 * coverage:g}\u202f% interval)"
    if low is None or high is None:
        return f"of {high} at most {covers}" if low is None else f"of {low} at least {covers}"
    return f"from {low} to {high} {covers}"


def _meaning(effects: Effects, row: Effect, said: Verdict, places: int | None) -> str:
    """What that comes to: against the margin, among other comparisons, and under several looks."""
    margin = "" if said.margin is None else f"The margin is {typeset(number(said.margin, 3))}. "
    if said.verdict == NONE:
        return f"{margin}{said.why}" if effects.sample_ratio.ok else margin  # of the arms' shares it is said above
    if effects.plan.looks is not None:
        number_of = len(effects.looks)
        return f"{margin}Planned look {number_of} has found: {said.verdict}."
    if not said.decided:
        clear = row.p_value is not None and row.p_value < 1 - effects.confidence
        among = " By itself it would look clear, but not among so many comparisons." if clear else ""
        proof = "" if said.margin is not None or clear else " This does not prove that there is no effect."
        return f"{margin}So this is not decided{'' if effects.final else ' yet'}.{among}{proof}"
    if said.holds:
        return f"{margin}This conclusion holds however often you checked the results."
    if row.anytime_why is not None:
        return f"{margin}This conclusion is for a single look at the end. {row.anytime_why}"
    interval = typeset(interval_text(row.anytime_ci_lower, row.anytime_ci_upper, places))
    return (
        f"{margin}This conclusion is for a single look at the end. If you checked the results along the way, it is not "
        f"certain yet: the interval is then {interval}."
    )


def _all_numbers(effects: Effects, comparison: Comparison, spreads: Spreads | None) -> Html:
    lead = comparison.lead
    level = effects.plan.outcome(lead.outcome).level
    reason = tag(
        "p",
        "The main estimate is ",
        tag("strong", lead.estimator),
        f" ({_phrase(effects, lead, level)}), since {why(effects, lead)} Its standard error is ",
        tag("strong", lead.se_kind),
        f". {ERRORS[lead.se_kind].sentence}",
    )
    best = comparison.best
    labels = [tag("span", row.estimator, " ", tag("small", row.se_kind)) for row in best]
    plot = forest(effects, best, labels) if len(best) > 1 else None
    return html(reason, plot, _bootstrap(comparison, spreads), _table(effects, comparison))


def _phrase(effects: Effects, lead: Effect, level: str) -> str:
    """What the estimator is; with strata, a difference is not the plain one."""
    estimator = ESTIMATORS[lead.estimator]
    phrase = estimator.phrase.replace("arms' means", f"arms' {level}s")
    within = effects.plan.within_strata and SUMS in estimator.sources
    if lead.estimator == DIFFERENCE:
        phrase = f"the {'' if within else 'plain '}difference between the arms' {level}s"
    return (
        f"{phrase}, with each {'site' if effects.plan.within_sites else 'stratum'} weighted by its size"
        if within
        else phrase
    )


def _bootstrap(comparison: Comparison, spreads: Spreads | None) -> Html | None:
    row = comparison.bootstrap
    if row is None or row.percentile_ci_lower is None or row.percentile_ci_upper is None:
        return None
    spread = None if spreads is None else spreads.get((comparison.outcome, comparison.arm))
    places = places_for([row.std_error])
    left_out = f" ({row.replicates_left_out:,} more could not be computed)" if row.replicates_left_out else ""
    interval = typeset(interval_text(row.percentile_ci_lower, row.percentile_ci_upper, places))
    sentence = tag(
        "p",
        f"Bootstrap ({row.estimator}): {row.replicates:,} replicates{left_out}; percentile interval {interval}, p "
        f"{typeset(p_text(row.percentile_p_value))}. ",
        "The trial's own report shows their distribution." if spreads is None else _form(spread),
    )
    if spread is None:
        return sentence
    quantiles = zip(SHARES, spread.quantiles, strict=True)
    words = [f"{100 * share:g}\u202f%: {typeset(number(q, places=places))}" for share, q in quantiles]
    axis = axis_over(spread.quantiles)
    box = box_row(axis, spread.quantiles, title="Spread of the replicates", description=", ".join(words))
    caption = tag("figcaption", "How the replicates of the effect are distributed: ", "; ".join(words), ".")
    rows = tag("ul", tag("li", box), tag("li", axis_row(axis), class_="ends"), class_="rows plain")
    return html(sentence, tag("figure", caption, rows))


def _form(spread: DistributionForm | None) -> str:
    if spread is None:
        return "There are too few replicates to show their spread."
    skewness = typeset(signed(number(spread.skewness, places=2)))
    if abs(spread.skewness) < 0.25:
        return f"Their distribution is nearly symmetric (skewness {skewness}), so both kinds of interval should agree."
    return (
        f"Their distribution is skewed (skewness {skewness}); the percentile interval allows for that, the "
        "other one does not."
    )


def _table(effects: Effects, comparison: Comparison) -> Html:
    rows = comparison.rows
    places = places_for(row.std_error for row in rows)
    finer = None if places is None else places + 1
    adjusted = any(row.p_adjusted is not None for row in rows)
    header = ["estimator", "error", "effect", "std. error", "df", f"{100 * effects.confidence:g} % interval", "p"]
    header += [*(["adjusted p"] if adjusted else []), "relative", "its interval", "any time"]
    cells = [
        [
            row.estimator,
            row.se_kind,
            typeset(number(row.estimate, places=places)),
            typeset(number(row.std_error, places=finer)),
            _freedom(row.df),
            typeset(interval_text(row.ci_lower, row.ci_upper, places)),
            typeset(p_text(row.p_value)),
            *([typeset(p_text(row.p_adjusted))] if adjusted else []),
            typeset(relative_text(row)),
            typeset(relative_interval_text(row)),
            typeset(interval_text(row.anytime_ci_lower, row.anytime_ci_upper, places)),
        ]
        for row in rows
    ]
    caption = f"{effects.heading(comparison.outcome)}: {comparison.arm} against {comparison.control}"
    below = [*tested(effects, [comparison.outcome]), *reasons(rows, rows)]
    return html(table(caption, header, cells, left=2), [tag("p", "– ", each) for each in below])


def _freedom(df: float | None) -> str:
    if df == math.inf:
        return "∞"
    return typeset(number(df, places=0 if df is None or df.is_integer() else 1))
