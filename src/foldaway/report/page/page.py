"""The report: the verdicts at a glance, what was asked, what was found, whether to trust it, and what was kept."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version

from foldaway.auditing.audit import audit
from foldaway.effects import Effects
from foldaway.effects.headline import comparisons
from foldaway.errors import many
from foldaway.evidence.ledger import Ledger
from foldaway.inference.balance import Balance, balance, prediction_balance
from foldaway.inference.bootstrap import spread
from foldaway.inference.contrast import Question
from foldaway.inference.estimators import distribution
from foldaway.keeping.saved import Saved
from foldaway.plan import Plan
from foldaway.report.drawing.markup import Html, html, named, tag
from foldaway.report.page.asked import asked
from foldaway.report.page.document import Report, Section, badge, document
from foldaway.report.page.found import Spreads, found
from foldaway.report.page.glance import glance
from foldaway.report.page.kept import kept
from foldaway.report.page.proven import proven
from foldaway.report.page.segments import segments
from foldaway.report.page.solved import solved
from foldaway.report.page.trust import sample_ratio_check, trust
from foldaway.tallies import Arms, Holding
from foldaway.tallies.arm import ArmTally


def effects_page(effects: Effects, ledger: Ledger | None = None) -> Report:
    """What effects alone can tell: they know neither the covariates' balance nor what was kept."""
    first = [] if effects.plan is None else [asked(effects.plan)]
    last = proven(Ledger() if ledger is None else ledger)
    return _page(effects, [*first, found(effects, None), *segments(effects), trust(effects, None), *last])


def trial_page(effects: Effects, plan: Plan, tallies: Holding, saved: Saved) -> Report:
    """The whole report.

    Args:
        effects: What the trial found.
        plan: Its plan.
        tallies: What it holds, from which come the balance of the arms and the spread of the bootstrap.
        saved: Its state and what is saved with it, from which comes what was kept.
    """
    balances: Sequence[Balance] | None
    if isinstance(tallies, Arms):
        forms, balances = spreads(effects, plan, tallies.arms), balance(plan, tallies.arms)
    else:
        forms, balances = {}, None if tallies.released else prediction_balance(plan, tallies)
    if effects.rounded and balances is not None:
        forms, balances = {}, [each.rounded() for each in balances]
    sections = [
        asked(plan),
        found(effects, forms),
        *segments(effects),
        trust(effects, balances),
        kept(saved, sum(effects.counts.values())),
        solved(audit(plan, tallies), told=effects.rounded),
        *proven(saved.ledger),
    ]
    return _page(effects, sections)


def spreads(effects: Effects, plan: Plan, arms: Sequence[ArmTally]) -> Spreads:
    """The bootstrap's spread behind each comparison's leading estimator, where there are replicates enough."""
    names, shares = list(plan.arms), list(plan.arms.values())
    places = {outcome.name: plan.places(outcome)[0] for outcome in plan.outcomes}
    forms = {}
    for each in comparisons(effects):
        if each.bootstrap is not None:
            question = Question(arms, shares, names.index(each.arm), places[each.outcome])
            if (form := spread(distribution(each.lead.estimator, question))) is not None:
                forms[each.outcome, each.arm] = form
    return forms


def _page(effects: Effects, sections: Sequence[Section]) -> Report:
    end = html(
        f"Created on {_today()} with foldaway {version('foldaway')}, which keeps no individual records. This page is "
        "self-contained: it loads nothing and sends nothing."
    )
    first = [glance(effects)] if any(row.estimate is not None for row in effects) else []
    return document(effects.trial, html(_lead(effects), _alarm(effects)), [*first, *sections], tag("p", end))


def _today() -> str:
    today = datetime.now(UTC)
    return f"{today.day} {today:%B %Y}"


def _lead(effects: Effects) -> Html:
    n = sum(effects.counts.values())
    arms = [html(named(arm), f":\u00a0{count:,}") for arm, count in effects.counts.items()]
    return tag("p", f"{many(n, 'record')} (", Html(", ".join(arms)), ")", class_="lead")


def _alarm(effects: Effects) -> Html | None:
    """What is to be read before any effect, such as a sample ratio that does not fit."""
    if effects.alarm is None:
        return None
    said = effects.alarm if effects.sample_ratio.ok else sample_ratio_check(effects).sentence
    return tag("div", tag("p", badge("fails"), " ", said), class_="alarm", role="note")
