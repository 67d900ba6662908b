"""Whether effects have any number to tell."""

from __future__ import annotations

from foldaway.effects.effects import Effects


def why_withheld(effects: Effects) -> str | None:
    """Why no row has an estimate, as a sentence; None if a row has one.

    Example:
        >>> import foldaway as fa
        >>> plan = fa.Plan(name="demo", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
        >>> why_withheld(fa.Trial(plan).effects())
        'There are no records yet.'
    """
    if any(row.estimate is not None for row in effects.rows):
        return None
    return next((row.why for row in effects.rows if row.why is not None), "No row has an estimate.")
