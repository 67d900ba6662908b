"""What leaves memory of a trial's tallies: coefficients are fixed, and levels that too few have are pooled."""

from __future__ import annotations

from foldaway.inference.adjusting import LEAST_PER_COLUMN, Start, fit_starts, too_few
from foldaway.tallies import Held, grouped_of


def is_ripe(held: Held) -> bool:
    """Whether the first write may come: it fixes the coefficients, and of too few records there would be none.

    But it waits no longer than for ten times as many: most records may lack an outcome for good.
    """
    if (cases := held.fitted) is None:
        return True
    largest = cases.parts[cases.largest]
    return not too_few(largest) or held.n >= 10 * LEAST_PER_COLUMN * largest.shape.row.regressors


def start_of(held: Held) -> Start:
    """The coefficients that are fixed, or that the records so far give, of a trial that keeps sums."""
    if (cases := held.fitted) is None:
        return Start(grouped_of(held).predictor, None, grouped_of(held).why)
    start = fit_starts(cases, held.plan)
    if start.predictor is None:
        saved = "it was saved before there were so many. Put coefficients into its plan: `foldaway plan calibrate`."
        return start._replace(why=f"{start.why.partition(';')[0]}, and {saved}")
    return start


def fixed(held: Held, start: Start | None = None) -> Held:
    """Tallies as they are kept: coefficients are fixed, so that no regression can be read from them.

    Levels that too few units have are pooled. Coefficients may come from more records than are here: `start`.
    """
    if held.unfixed and held.n:
        held = held.fixed(*(start or start_of(held)))
    return held.pooled()
