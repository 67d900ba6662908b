"""What was asked: the plan in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from foldaway.plan import Plan
from foldaway.plan.parts import Strata
from foldaway.report.drawing.markup import Html, html, listed, named, tag
from foldaway.report.page.document import Section, details, table

# Of so many strata the shares are shown outside the plan.
_MOST_STRATA = 12


def asked(plan: Plan) -> Section:
    """The question, who took part, what was measured, and the fingerprint that shows it was not changed since."""
    others = list(plan.arms)[1:]
    question = html(
        "Compared with ",
        tag("strong", named(plan.control)),
        ", does ",
        listed((tag("strong", named(arm)) for arm in others), "or"),
        " change ",
        listed((tag("strong", named(outcome.title)) for outcome in plan.outcomes), "or"),
        "?",
    )
    terms = [html(tag("dt", term), tag("dd", text)) for term, text in _terms(plan)]
    body = html(
        tag("p", question, class_="question"),
        _estimand(plan),
        tag("dl", terms),
        details(
            "The plan, word for word",
            tag(
                "p",
                "The plan was fixed before the first record arrived. Its fingerprint is a checksum of all of it: a "
                "plan that differs in any way has another one.",
            ),
            tag("pre", plan.to_toml(), tabindex="0"),
        ),
    )
    return Section("asked", "What was asked", body)


def _estimand(plan: Plan) -> Html | None:
    """What the trial estimates, as ICH E9(R1) has it; the variable is the plan's outcomes."""
    if plan.estimand is None:
        return None
    rows = [[name, tag("bdi", text)] for name, text in plan.estimand.attributes.items()]
    variable = ["Variable", listed(named(outcome.title) for outcome in plan.outcomes)]
    return table("Estimand (ICH E9(R1))", ["attribute", "of this trial"], [*rows, variable], left=2)


def _terms(plan: Plan) -> Iterator[tuple[str, Html]]:
    yield "Arms", html(_shares(plan.arms), "; ", named(plan.control), " is the control arm")
    if plan.strata is not None:
        yield "Randomised within", _strata(plan.strata)
    if plan.covariates:
        yield "Adjusted for", html(listed(_covariate(plan, name) for name in plan.covariates), ", measured beforehand")
    if plan.unit is not None:
        together = ", with all records of a unit together" if plan.whole_units else ""
        yield "Randomised", html("by ", named(plan.unit), together)
    if plan.cluster is not None:
        yield "Clustered", html("by ", named(plan.cluster), ", whose units may be in different arms")
    if plan.weight is not None:
        yield "Weighted by", html(named(plan.weight))
    if asked := dict.fromkeys(each.wanted for each in plan.outcomes if each.wanted):
        shown = {wanted: [named(each.title) for each in plan.outcomes if each.wanted == wanted] for wanted in asked}
        parts = [html(f"that an arm is {wanted} in ", listed(titles)) for wanted, titles in shown.items()]
        yield "To be shown", Html("; ".join(parts))
    yield "Intervals", html(f"{100 * plan.confidence:g}\u202f%")
    if plan.correction != "none" and len(plan.outcomes) * (len(plan.arms) - 1) > 1:
        yield "Several comparisons", html("allowed for by the correction ", tag("code", plan.correction))
    if plan.bootstrap is not None:
        by = html("record") if plan.clustering is None else html(named(plan.clustering))
        yield (
            "Bootstrap",
            html(f"{plan.bootstrap.replicates:,} replicates by ", by, f", {plan.bootstrap.weights} weights"),
        )
    faulty = "left out, and counted" if plan.drops else "batches that contained invalid records were rejected"
    yield "Faulty records", html(faulty)
    yield "Fingerprint", tag("code", plan.fingerprint)


def _shares(arms: Mapping[str, float]) -> Html:
    return listed(html(named(arm), f" {100 * share:.4g}\u202f%") for arm, share in arms.items())


def _strata(strata: Strata) -> Html:
    """The strata and the arms' shares in them, as far as these can be taken in at a glance."""
    first, more = list(strata.probabilities.items())[:_MOST_STRATA], len(strata.probabilities) - _MOST_STRATA
    each = [html(named(stratum), " (", _shares(shares), ")") for stratum, shares in first]
    return html(
        "the strata of ", named(strata.column), ": ", listed([*each, *([f"{more:,} more"] if more > 0 else [])])
    )


def _covariate(plan: Plan, name: str) -> Html:
    levels = plan.levels.get(name)
    return html(named(name), [" (", listed(map(named, levels)), ")"] if levels else None)
