"""Effects: what a trial found, for people: tables, HTML, plots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foldaway.effects.findings import Findings
from foldaway.effects.printed import as_html, as_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Effects(Findings):
    """The effects of a trial, with the checks that say whether to trust them."""

    def to_string(self, *, all_kinds: bool = False) -> str:
        """A table per comparison, with one kind of standard error per estimator unless all are asked for."""
        return as_text(self, all_kinds)

    def to_html(self, *, all_kinds: bool = False) -> str:
        """The same as HTML."""
        return as_html(self, all_kinds)

    def plot(self, axes: Axes | None = None, *, estimators: bool = False) -> Figure:
        """A forest plot of the effects and their intervals, by matplotlib (``pip install foldaway[plot]``).

        Args:
            axes: Where to draw one outcome; a new figure with a panel for each outcome if left out.
            estimators: Show every estimator, in place of the one that the report leads with.
        """
        from foldaway.effects.plot import forest

        return forest(self, axes, estimators=estimators)

    def __str__(self) -> str:
        return self.to_string()

    def _repr_html_(self) -> str:
        return self.to_html()
