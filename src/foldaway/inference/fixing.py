"""What leaves memory of a trial's tallies: coefficients are fixed, and levels that too few have are pooled."""

from __future__ import annotations

from foldaway.inference.adjusting import LEAST_PER_COLUMN, Start, fit_starts, too_few
from foldaway.plan import Plan
from foldaway.tallies import Arms, Grouped, Holding
from foldaway.tallies.pooling import rare_levels


def is_rich(tallies: Holding) -> bool:
    """Whether a trial holds moments by group, which become sums when it is first saved."""
    return isinstance(tallies, Grouped) and tallies.moments is not None


def is_ripe(tallies: Holding) -> bool:
    """Whether the first write may come: it fixes the coefficients, and of too few records there would be none.

    But it waits no longer than for ten times as many: most records may lack an outcome for good.
    """
    if not isinstance(tallies, Grouped) or tallies.moments is None:
        return True
    largest = tallies.moments.parts[tallies.moments.largest]
    return not too_few(largest) or tallies.n >= 10 * LEAST_PER_COLUMN * largest.shape.row.regressors


def start_of(plan: Plan, tallies: Holding) -> Start | None:
    """The coefficients that are fixed, or that the records so far give; none if the trial keeps moments."""
    if not isinstance(tallies, Grouped):
        return None
    if tallies.moments is None:
        return Start(tallies.predictor, None, tallies.why)
    start = fit_starts(tallies.moments, plan)
    if start.predictor is None:
        saved = "it was saved before there were so many. Put coefficients into its plan: `foldaway plan calibrate`."
        return start._replace(why=f"{start.why.partition(';')[0]}, and {saved}")
    return start


def fixed(plan: Plan, tallies: Holding, start: Start | None = None) -> Holding:
    """Rich tallies made lean: coefficients are fixed and sums alone kept, from which no regression can be read.

    Of a trial that keeps moments, levels that too few people have in an arm are pooled. Devices and sites have rules of
    their own for what they send. Coefficients may come from more records than are here: `start`.
    """
    least = plan.privacy.smallest_cell
    if isinstance(tallies, Arms):
        return tallies if plan.federated is not None else tallies.pool(rare_levels(plan, tallies.arms, least))
    if tallies.moments is not None and tallies.n:
        start = start or start_of(plan, tallies)
        assert start is not None
        tallies = tallies.fixed(start.predictor, start.without, start.why)
    return tallies.pooled(least)
