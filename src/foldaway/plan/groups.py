"""Into how many groups units are dealt: as many as leave nobody alone.

More groups give a steadier error: its own spread is 1/√(2G). What limits them is privacy, for a cell of one unit is
that unit. So their number follows from how many units there are to be. Groups are also how units are counted, so there
are always more of them than the units that an answer needs.
"""

from __future__ import annotations

import math

FEWEST, USUAL, MOST = 16, 128, 4096
"""The fewest groups and the most, both powers of two; and how many there are where nobody says what to expect."""


def groups_for(units: float | None, least: int) -> int:
    """The largest power of two, from 16 to 4,096, that leaves at least so many of these units in each group.

    It is always larger than that least number.

    Example:
        >>> groups_for(10_000, 10), groups_for(50, 10), groups_for(1e9, 10), groups_for(50, 100), groups_for(None, 10)
        (512, 16, 4096, 128, 128)
    """
    fewest = FEWEST
    while fewest <= least and fewest < MOST:
        fewest *= 2
    if units is None:
        return max(USUAL, fewest)
    groups = MOST
    while groups > fewest and units < least * groups:
        groups //= 2
    return groups


def units_for(groups: int, share: float, least: int) -> int:
    """The fewest units that are dealt into so many groups, where an arm has this share of them.

    Example:
        >>> units_for(512, 0.5, 10), groups_for(10_240 * 0.5, 10)
        (10240, 512)
    """
    return math.ceil(groups * least / share)


def spread_of_error(groups: int) -> float:
    """How much an error from so many groups varies with how units fall into them: a share of itself.

    Example:
        >>> round(spread_of_error(128), 3)
        0.062
    """
    return 1 / math.sqrt(2 * groups)
