"""The report: the verdicts at a glance, what was asked and found, whether to trust it, for whom, what was kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version

from foldaway.auditing.audit import audit
from foldaway.auditing.finding import Audit
from foldaway.effects import Effects
from foldaway.effects.checks import ratio_alarm
from foldaway.effects.headline import comparisons
from foldaway.effects.numbers import typeset
from foldaway.effects.percent import HUNDRED, in_percent, shares_of
from foldaway.effects.read_flow import with_flow
from foldaway.effects.scorecard import explanations, lines_of
from foldaway.errors import many
from foldaway.evidence.ledger import ENDED, WRITTEN, Ledger
from foldaway.evidence.verifying import events
from foldaway.inference.balance import Balance, balance, prediction_balance
from foldaway.inference.bootstrap import spread
from foldaway.inference.contrast import Question
from foldaway.inference.estimators import distribution
from foldaway.keeping.saved import Saved
from foldaway.plan import Flow, Plan
from foldaway.report.drawing.markup import Html, html, named, prose, tag
from foldaway.report.page.asked import asked
from foldaway.report.page.document import Report, Section, State, badge, details, document, notes, table
from foldaway.report.page.found import Spreads, found, mark
from foldaway.report.page.kept import kept
from foldaway.report.page.participants import participants
from foldaway.report.page.segments import by_segment
from foldaway.report.page.trust import sample_ratio_check, trust
from foldaway.tallies import Held, arms_of, grouped_of
from foldaway.tallies.moments import ArmTally


def effects_page(effects: Effects, ledger: Ledger | None = None, flow: Flow | None = None) -> Report:
    """What effects alone can tell: they know neither the covariates' balance nor what was kept."""
    plan, effects = effects.plan, in_percent(effects if flow is None else with_flow(effects, flow))
    first = [asked(plan), *participants(effects), found(effects, None), trust(effects, None), *by_segment(effects)]
    ledger = Ledger() if ledger is None else ledger
    return _page(effects, [*first, *_proven(ledger)], ledger)


def trial_page(effects: Effects, plan: Plan, tallies: Held, saved: Saved) -> Report:
    """The whole report: from the tallies come balance and bootstrap, from what is saved with them what was kept."""
    arms, forms = arms_of(tallies), spreads(effects, plan, arms_of(tallies))
    effects = in_percent(effects)
    balances: Sequence[Balance] | None = None
    if not tallies.released:
        balances = balance(plan, arms) if arms else prediction_balance(plan, grouped_of(tallies))
    if effects.rounded and balances is not None:
        forms, balances = {}, [each.rounded() for each in balances]
    sections = [
        asked(plan),
        *participants(effects),
        found(effects, forms),
        trust(effects, balances),
        *by_segment(effects),
        kept(saved, sum(effects.counts.values())),
        _solved(audit(plan, tallies), told=effects.rounded),
        *_proven(saved.ledger),
    ]
    return _page(effects, sections, saved.ledger)


def spreads(effects: Effects, plan: Plan, arms: Sequence[ArmTally]) -> Spreads:
    """The spread of the bootstrap that each comparison is shown with, where there are replicates enough."""
    names, shares = list(plan.arms), list(plan.arms.values())
    places = {outcome.name: plan.places(outcome)[0] for outcome in plan.outcomes}
    forms = {}
    for each in comparisons(effects):
        if each.bootstrap is not None:
            question = Question(arms, shares, names.index(each.arm), places[each.outcome])
            if (form := spread(distribution(each.bootstrap.estimator, question))) is not None:
                scale = HUNDRED if each.outcome in shares_of(plan) else 1.0
                forms[each.outcome, each.arm] = form._replace(quantiles=tuple(scale * q for q in form.quantiles))
    return forms


def _glance(effects: Effects) -> Section:
    """The scorecard: one line for each outcome and arm, and what to know about the verdicts."""
    lines = lines_of(effects)
    judged = [line.verdict for line in lines]
    several = len({each.arm for each in judged}) > 1
    arms = ["Control", "In the arm"] if several else [judged[0].control, judged[0].arm]
    header = ["Outcome and arm" if several else "Outcome", "Verdict", "Effect"]
    header += [f"{100 * effects.confidence:g} % interval", *arms]
    rows = [
        [
            html(
                named(each.label),
                tag("small", " ", named(each.measure)) if each.measure else None,
                tag("div", named(each.arm), class_="arm") if several else None,
            ),
            mark(each),
            *map(typeset, (line.effect, line.interval, line.control_level, line.level)),
        ]
        for line, each in zip(lines, judged, strict=True)
    ]
    body = table("Every outcome at a glance", header, rows, left=2), notes(explanations(effects))
    return Section("glance", "At a glance", tag("div", body, class_="card"))


def _solved(audit: Audit, *, told: bool) -> Section:
    """What the attacks found in the tallies behind this page; the page itself has none of these numbers.

    Others, who are `told` rounded effects, learn only whether there is something to protect.
    """
    title = "Could anyone's values be worked out?"
    if told:
        needs_key = (
            "Not from this page, whose numbers are rounded. The tallies behind it are encrypted; until the trial is "
            "ended, anyone who had them and their key could work out some people's values."
        )
        return Section("solved", title, tag("p", needs_key if audit.findings else audit.verdict()))
    rows = [[each.attack, each.outcome, f"{each.near:,}", each.needs or "nothing"] for each in audit.findings]
    found = table("What the attacks found", ["attack", "outcome", "records", "what else it takes"], rows, left=2)
    remedies = dict.fromkeys(each.remedy for each in audit.findings)
    body = html(
        tag("p", audit.verdict(), " This is about the tallies, which are kept encrypted, and not about this page."),
        *([found, *(tag("p", prose(remedy)) for remedy in remedies)] if rows else []),
    )
    return Section("solved", title, body)


def _proven(ledger: Ledger) -> Iterator[Section]:
    """What happened and when, and the hash that stands for it; nothing where no ledger outlives the process."""
    if ledger.last(WRITTEN, ENDED) is None:
        return
    lead = (
        "The trial keeps a ledger: each entry is signed and names the one before it, so none can be changed or removed "
        "unnoticed. If the head below was published elsewhere, nobody can have written the entries later. "
        "`foldaway certificate` gives you a file with all of "
        "it, which others can check without trusting you."
    )
    rows = [[time, event[0].upper() + event[1:]] for time, event in events(ledger)]
    entries = details(f"All {len(rows):,} entries", table("The ledger", ["UTC", "what happened"], rows, left=2))
    body = html(tag("p", prose(lead)), tag("p", "Head: ", tag("code", ledger.head)), entries)
    yield Section("proven", "Can it be proven?", body)


def _page(effects: Effects, sections: Sequence[Section], ledger: Ledger) -> Report:
    today = datetime.now(UTC)
    end = (
        f"Created on {today.day} {today:%B %Y} with foldaway {version('foldaway')}, which keeps no individual records. "
        "This page is self-contained: it loads nothing and sends nothing."
    )
    first = [_glance(effects)] if any(row.estimate is not None for row in effects) else []
    return document(
        effects.trial,
        html(_decided(effects, ledger), _lead(effects), _alarm(effects)),
        [*first, *sections],
        tag("p", end),
    )


def _decided(effects: Effects, ledger: Ledger) -> Html | None:
    """What to do, for whoever reads no further, and the rule that decided."""
    if not any(row.estimate is not None for row in effects):
        return None
    decided = effects.decisions(_records_per_day(effects, ledger))
    sentences = [tag("p", each.sentence, class_=f"decision {each.choice.replace(' ', '-')}") for each in decided]
    return html(*sentences, tag("p", decided[0].rule, class_="kind") if decided[0].rule else None)


def _records_per_day(effects: Effects, ledger: Ledger) -> float | None:
    """How many records came in a day so far, if the ledger tells of more than a day."""
    times = [datetime.fromisoformat(each.entry.time) for each in ledger.lines]
    days = (max(times) - min(times)).total_seconds() / 86_400 if times else 0.0
    return sum(effects.counts.values()) / days if days >= 1 else None


def _lead(effects: Effects) -> Html:
    n = sum(effects.counts.values())
    arms = [html(named(arm), f":\u00a0{count:,}") for arm, count in effects.counts.items()]
    return tag("p", f"{many(n, 'record')} (", Html(", ".join(arms)), ")", class_="lead")


def _alarm(effects: Effects) -> Html | None:
    """What is to be read before any effect, such as a sample ratio that does not fit."""
    if effects.alarm is None:
        return None
    said = effects.alarm if effects.sample_ratio.ok else sample_ratio_check(effects).sentence
    # Records of units that do not fit are no failure by themselves; what else alarms is.
    state: State = "look" if effects.alarm == ratio_alarm(effects.sample_ratio) and effects.sample_ratio.ok else "fails"
    return tag("div", tag("p", badge(state), " ", said), class_="alarm", role="note")
