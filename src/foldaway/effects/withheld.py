"""Whether the end of a trial would leave effects withheld."""

from __future__ import annotations

from foldaway.effects.effects import Effects
from foldaway.plan.vocabulary import MEDIAN_OF_MEANS


def why_withheld(effects: Effects) -> str | None:
    """Why a row has no estimate, as a sentence that names the row unless it is so of all; None if all have one.

    Example:
        >>> import foldaway as fa
        >>> plan = fa.Plan(name="demo", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
        >>> why_withheld(fa.Trial(plan).effects())
        'There are no records yet.'
    """
    # The robust estimate stands beside the plain one, and needs more devices: a trial may end without it.
    rows = [row for row in effects.rows if row.estimator != MEDIAN_OF_MEANS]
    missing = [row for row in rows if row.estimate is None]
    if not missing:
        return None if rows else "No row has an estimate."
    why = next((row.why for row in missing if row.why is not None), "No row has an estimate.")
    if len(missing) == len(rows):
        return why
    row = missing[0]
    named = ", ".join(each for each in (row.outcome, row.arm, row.estimator, row.segment) if each)
    return f"{len(missing):,} of {len(rows):,}, such as {named}: {why}"
