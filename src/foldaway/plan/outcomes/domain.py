"""What the numbers of a column may be, where not every number makes sense."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldaway.numerics.block import Floats


class Domain(NamedTuple):
    """The numbers that a column may have.

    Attributes:
        rule: What is said of a record whose number is another.
        least: The smallest.
        only: All of them, if they are few.

    Example:
        >>> NOT_NEGATIVE.broken(np.array([-1.0, 0.0, np.nan])), ZERO_OR_ONE.broken(np.array([0.0, 2.0]))
        (array([ True, False, False]), array([False,  True]))
    """

    rule: str
    least: float = -np.inf
    only: tuple[float, ...] = ()

    def broken(self, values: Floats) -> NDArray[np.bool_]:
        """Which values are outside; none where there is no value."""
        outside: NDArray[np.bool_] = values < self.least
        return outside if not self.only else ~np.isin(values, self.only) & ~np.isnan(values)


NOT_NEGATIVE = Domain("negative", least=0.0)
ZERO_OR_ONE = Domain("neither 0 nor 1", only=(0.0, 1.0))
