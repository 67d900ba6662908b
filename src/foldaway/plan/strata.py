"""The part of a plan for units that were randomised within strata, each with arm probabilities of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar

from msgspec import Meta

from foldaway.plan.part import Part

Shares = Annotated[
    Mapping[str, Mapping[str, float]],
    Meta(description="a table for each stratum, with the probability of every arm in it"),
]

# Their codes travel as 16-bit integers.
MOST_STRATA = 10_000


class Strata(Part, frozen=True):
    """The strata within which units were randomised, such as sites or the weeks of a ramp-up.

    Where strata differ in their arm probabilities, arms hold them in different proportions, and the plain difference of
    the arms' means compares unlike units. With strata named, effects compare within them.

    Attributes:
        column: The column that names a record's stratum.
        probabilities: By stratum, those of the arms.

    Example:
        >>> strata = Strata("week", {"1": {"control": 0.9, "new": 0.1}, "2": {"control": 0.5, "new": 0.5}})
        >>> strata.probabilities["1"]["new"]
        0.1
    """

    TABLE: ClassVar[str] = "strata"

    column: Annotated[str, Meta(description="the name of a column")]
    probabilities: Shares

    @property
    def alike(self) -> bool:
        """Whether the arms have the same probabilities in all strata."""
        return len({frozenset(shares.items()) for shares in self.probabilities.values()}) < 2

    def faults(self) -> Iterator[str]:
        """What is wrong with the probabilities."""
        if not self.column:
            yield "`strata.column` has a column without a name."
        if not 1 <= len(self.probabilities) <= MOST_STRATA:
            yield f"`strata.probabilities` must have one to {MOST_STRATA:,} strata."
        for stratum, shares in self.probabilities.items():
            if any(not 0 < share < 1 for share in shares.values()):
                yield f"the probabilities of the stratum {stratum!r} must lie between 0 and 1."
            elif not math.isclose(total := math.fsum(shares.values()), 1, abs_tol=1e-9):
                yield f"the probabilities of the stratum {stratum!r} add up to {total:.10g} instead of 1."

    def misfits(self, arms: Mapping[str, float]) -> Iterator[str]:
        """A sentence for each stratum that does not have the plan's arms."""
        for stratum, shares in self.probabilities.items():
            if set(shares) != set(arms):
                yield f"the stratum {stratum!r} must have a probability for each of {', '.join(arms)}, and no other."
