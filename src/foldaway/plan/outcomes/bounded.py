"""What outcomes of a single column may say of its values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from foldaway.plan.limits import Beyond, ColumnLimits, Ends
from foldaway.plan.outcomes.outcome import Outcome


class Bounded(Outcome, frozen=True, kw_only=True):
    """Means, shares and totals may say between which values their column lies.

    Bounds are of the column as it arrives: they hold for all outcomes of it, and values beyond them are counted by arm.

    Attributes:
        bounds: The lowest and the highest value of the column.
        beyond: What happens to values beyond them: ``"clip"`` them, counted by arm, or ``"refuse"`` them as faulty.
    """

    bounds: Ends | None = None
    beyond: Beyond = "clip"

    @property
    def limits(self) -> Mapping[str, ColumnLimits]:
        """The column's, if it has bounds."""
        return {} if self.bounds is None else {self.columns[0]: ColumnLimits(self.bounds, self.beyond)}

    def faults(self) -> Iterator[str]:
        """What is wrong with the settings taken together."""
        yield from super().faults()
        if self.bounds is None and self.beyond != "clip":
            yield f"`beyond` of {self.columns[0]!r} needs `bounds`."
