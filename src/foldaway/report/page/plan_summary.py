"""What a plan will do, for a person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import fill

from foldaway.effects.looks import design_of, outcome_of
from foldaway.effects.numbers import bytes_text
from foldaway.effects.released import least_records, protected
from foldaway.errors import EstimateError, many
from foldaway.inference.looks.planned import bounds_at
from foldaway.plan import Plan
from foldaway.plan.reported import errors_of, estimators_of, tallies_of
from foldaway.plan.vocabulary import MOMENTS, ONE, REPLICATES, SUMS
from foldaway.report.page.dealt import dealing
from foldaway.report.page.kept import planned
from foldaway.table import text_table
from foldaway.tallies import empty_holding, grouped_of

WIDTH = 80


def summary(plan: Plan, more: Sequence[str] = ()) -> str:
    """The plan's columns and their roles, its estimators and errors, and what will be kept.

    Args:
        plan: The plan.
        more: Further paragraphs, such as what a federated plan asks of its devices.

    Example:
        >>> plan = Plan(name="demo", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
        >>> print(summary(plan).splitlines()[0])
        demo is a valid plan.
    """
    estimators = [[name, ", ".join(errors_of(plan, name))] for name in estimators_of(plan)]
    estimand = [] if plan.estimand is None else plan.estimand.attributes.items()
    paragraphs = (*_looks(plan), *_bootstrap(plan), *_release(plan), *more, _arms(plan), _faults(plan), *_kept(plan))
    return "\n\n".join(
        [
            fill(f"{plan.name} is a valid plan.", WIDTH, break_on_hyphens=False),
            text_table(["column", "role", "detail"], _roles(plan), left=3, width=WIDTH),
            text_table(["estimator", "standard errors"], estimators, left=2, width=WIDTH),
            *([text_table(["estimand", ""], [[*each] for each in estimand], left=2, width=WIDTH)] if estimand else []),
            *dealing(plan, WIDTH),
            *(fill(paragraph, WIDTH, break_on_hyphens=False) for paragraph in paragraphs),
            f"Fingerprint: {plan.fingerprint}",
        ]
    )


def _looks(plan: Plan) -> Iterator[str]:
    """When looks are planned, and what an effect must pass at each, if it is taken as planned."""
    if plan.looks is None:
        return
    arms = len(plan.arms) - 1 if plan.correction == "holm" else 1
    bounds = bounds_at(design_of(plan), plan.looks.at, last=True, tests=arms)
    among = f" The error rate is divided among {arms:,} arms." if arms > 1 else ""
    looks = (f"{100 * at:g} % (z = {upper:.3f})" for at, upper in zip(plan.looks.at, bounds.upper, strict=True))
    yield (
        f"Looks are planned with these shares of the information: {', '.join(looks)}. They decide on "
        f"{outcome_of(plan).name}: a statistic z beyond the boundary in brackets shows an effect. If a look has "
        f"another share, its boundary follows from that.{among}"
    )


def _roles(plan: Plan) -> list[list[str]]:
    others = {arm: values for arm, values in plan.arms.said.items() if values != (arm,)}
    said = {arm: f" (written {', '.join(map(repr, values))})" for arm, values in others.items()}
    arms = ", ".join(f"{name}{said.get(name, '')}: {share:.4g}" for name, share in plan.arms.items())
    rows = [[plan.arm, "arm", f'{arms}; "{plan.control}" is the control arm']]
    if plan.federated is not None:
        for site, shares in plan.federated.probabilities.items():
            rows.append([site, "site", "; ".join(f"{arm}: {share:.4g}" for arm, share in shares.items())])
        rows += [[site, "site", f"counts as {other}"] for site, other in plan.federated.joined.items()]
    for outcome in plan.outcomes:
        compared = [
            f"compared by its {outcome.level}",
            f"asks whether an arm is {outcome.wanted}" if outcome.wanted else "",
            f"{outcome.better} is better" if outcome.better else "",
            "may be missing" if outcome.missing == "allowed" else "",
            *(_bounds(plan, name) for name in outcome.columns),
        ]
        if (bins := outcome.binning) is not None:
            compared.append(bins.phrase)
        rows.append([outcome.name, "outcome", "; ".join(filter(None, compared))])
    for name in plan.covariates:
        levels = plan.levels.get(name)
        rows.append([name, "covariate", f"levels {', '.join(levels)}" if levels else _bounds(plan, name)])
    for name in plan.segments:
        known = plan.levels.get(name)
        rows.append([name, "segment", f"levels {', '.join(known)}" if known else "each level that enough units have"])
    for name in plan.baseline:
        known = plan.levels_of(name)
        either = "mean and standard deviation" + (
            ", or each level that enough units have" if name in plan.unlisted_characteristics else ""
        )
        rows.append([name, "baseline", f"levels {', '.join(known)}" if known else either])
    if plan.strata is not None:
        strata = many(len(plan.strata.probabilities), "stratum", "strata")
        own = "with the same" if plan.strata.alike else "each with its own"
        rows.append([plan.strata.column, "stratum", f"{strata}, {own} arm probabilities"])
    if plan.received:
        rows.append([plan.received, "received", "whether, or how much of, the treatment was taken up"])
    if plan.unit:
        rows.append([plan.unit, "unit", _promise(plan)])
    if plan.cluster:
        rows.append([plan.cluster, "cluster", f"dealt into {plan.groups:,} groups" if plan.grouped else ""])
    if plan.weight:
        rows.append([plan.weight, "weight", ""])
    return rows


def _bounds(plan: Plan, name: str) -> str:
    if (limits := plan.limits.get(name)) is None:
        return ""
    lower, upper = limits.bounds
    return f"{lower:,g} to {upper:,g}, {'clipped' if limits.beyond == 'clip' else 'faulty'} beyond"


def _release(plan: Plan) -> list[str]:
    if plan.release is None:
        return []
    budget = f"ε = {plan.release.epsilon:g}, δ = {plan.release.delta:g}"
    try:
        few = f"An arm of fewer than {least_records(plan):,} records would be lost in the noise."
    except EstimateError as missing:  # which a plan can be checked, and a trial run, without
        few = f"How many records an arm needs is not known here, because {missing}"
    return [f"Effects are published once, with noise ({budget}). {protected(plan)} {few}"]


def _arms(plan: Plan) -> str:
    """Who can know a unit's arm."""
    if plan.federated is not None and plan.unit is None:
        return (
            "Each device draws its own arm with `plan.assign`, from a random number that stays on it. Anybody who "
            "knows this number can compute the arm, and the device's owner can see it."
        )
    return (
        "Draw arms with `trial.assign`: it uses the trial's secret key. Arms from `plan.assign` are public: anybody "
        "who has this plan and an identifier can compute them."
    )


def _promise(plan: Plan) -> str:
    if plan.whole_units:
        return "all records of a unit in one batch"
    if plan.records_per_unit == ONE:
        return "one record each"
    return f"dealt into {plan.groups:,} groups" if plan.grouped and plan.cluster is None else ""


def _bootstrap(plan: Plan) -> list[str]:
    if plan.bootstrap is None:
        return []
    by = f"by {plan.clustering}" if plan.clustering else "by record"
    return [f"Bootstrap: {plan.bootstrap.replicates:,} replicates {by}, {plan.bootstrap.weights} weights."]


def _faults(plan: Plan) -> str:
    of = "a value of any of these columns" if plan.federated is None else "an outcome or a covariate"
    lacks = f"A record that lacks {of} is faulty"
    lacks += ", unless it is an outcome that may be missing: then it counts for the others. " if plan.lacking else ". "
    if plan.federated is None:
        return f"{lacks}A batch with a faulty record is {'folded without it' if plan.drops else 'rejected as a whole'}."
    site = f"A site {'folds its batch without it' if plan.drops else 'rejects a whole batch with one'}."
    if plan.sites_only:
        return lacks + site
    device = f"{lacks}A device rejects a faulty record"
    device += ", whatever `drop_limit` says, because it has nowhere to count it." if plan.drops else "."
    return device if plan.unit is None else f"{device} {site}"


def _kept(plan: Plan) -> list[str]:
    if plan.federated is not None:
        return []  # its mode says what the coordinator keeps
    items = planned(plan)
    numbers = sum(count for *_, count in items)
    kinds = ", ".join(f"{name.lower()}: {count:,}" for name, _, count in items)
    kept = f"Kept: {many(numbers, 'number')}, however many records arrive ({kinds}): a state of about "
    narrow = 0  # counts of four bytes, which hold up to 4·10⁹ records
    if plan.bins and not plan.weighted:
        held = grouped_of(empty_holding(plan))
        parts = (held, *(segment.cells for segment in held.segments))
        narrow = sum(each.size for part in parts for each in part.histograms)
    size = bytes_text(8 * numbers - 4 * narrow + 1000)
    more = ""
    if unlisted := " and ".join(column for column in plan.segments if column not in plan.levels):
        # One level of each such column is counted above: what stands for all that few units have.
        levels = sum(len(plan.levels.get(column, "?")) for column in plan.segments)
        each = sum(count for name, _, count in items if name.startswith("Segments")) // levels
        more = f" It grows by {many(each, 'number')}, about {bytes_text(8 * each)}, with each level of {unlisted} that "
        more += "enough units have; list the levels in the plan to know its size beforehand."
    return [f"{kept}{size}.{more} A record costs about {_cost(plan):,} additions.", *_rich(plan)]


def _cost(plan: Plan) -> int:
    """Additions and multiplications for each record, to the first order."""
    k, outcomes = len(plan.regressors), len(plan.values)
    sums = 1 + outcomes * (4 + 2 * k if plan.covariates else 4) + 2 * len(plan.bins)
    if plan.keeps == SUMS:
        return sums
    tallies, columns = tallies_of(plan), len(plan.columns)
    scores = k * (k + 1) // 2 + k * outcomes
    replicates = 0 if plan.bootstrap is None else plan.bootstrap.replicates * scores // 8
    return sums + columns**2 + (scores**2 if tallies - {REPLICATES} else 0) + replicates


def _rich(plan: Plan) -> list[str]:
    """What a plan keeps for a while, or that says more about people than sums do."""
    if plan.keeps == MOMENTS:
        return [
            "Moments say far more about single people than sums by group do: whoever holds them and knows that someone "
            "is alone in a combination of levels can solve for that person's outcome. Saved states have such levels "
            "pooled."
        ]
    said = []
    if plan.bins:
        said.append(
            "Quantiles and survival are read from histograms, which hold the value of every record, to the width of a "
            "bin, without anything else about it. They are stored encrypted and never shown."
        )
    if plan.covariates and plan.coefficients is None:
        said.append(
            "Until the trial is first saved, memory also holds products of the columns by group of units; a server "
            "stores them, encrypted, until there are 2,000 records. Then coefficients are fixed and the products are "
            "destroyed. `foldaway plan calibrate` fixes them beforehand."
        )
    return said
