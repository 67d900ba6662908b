"""The cohort gate: whether a state may leave memory, and whether an answer may be given (promise P2).

Everything that collects asks here: the server, the stream consumer, Spark streams, runs over files, devices' collector
and sites. The gate is given counts and times and never a value, since a gate that looked at outcomes would give them
away by its silence. It reads no clock and writes nothing: whoever asks does both.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Protocol, Self

from foldaway.errors import TooEarly


class CohortSettings(Protocol):
    """The plan's `privacy`, as far as the gate reads it; plans lie above this room."""

    @property
    def cohort(self) -> int:
        """The fewest records by which two states may differ."""
        ...

    @property
    def max_wait(self) -> float | None:
        """Seconds after which fewer may be written all the same."""
        ...

    @property
    def remainder(self) -> str:
        """Whether fewer are included at the end, or left out."""
        ...

    @property
    def smallest_cell(self) -> int:
        """The fewest of every arm for an answer."""
        ...


class Gate:
    """Stands between the tallies in memory and the state that is written: what was taken in, and may it be written?

    Args:
        settings: The plan's.
        timed: Whether `max_wait` counts. It does not for files, which hold their records until a state has them.

    Attributes:
        pending: What was taken in since the last write.

    Example:
        >>> from foldaway import Privacy
        >>> gate = Gate(Privacy(cohort=100, max_wait=60))
        >>> gate.take(40, now=0.0)
        >>> gate.may_write(now=59.0), gate.may_write(now=60.0), gate.left_out()
        (False, True, 40)
        >>> gate.take(60, now=59.0)
        >>> gate.may_write(now=59.0), gate.left_out()
        (True, 0)
        >>> gate.wrote()
        >>> gate.pending
        0
    """

    def __init__(self, settings: CohortSettings, *, timed: bool = True) -> None:
        self._settings = settings
        self._max_wait = settings.max_wait if timed and settings.max_wait is not None else math.inf
        self._since = 0.0  # when the first of what is pending came
        self.pending = 0

    def copy(self) -> Self:
        """As it stands now, to go back to if the batch is not taken after all."""
        return copy.copy(self)

    def take(self, count: int, now: float) -> None:
        """So many were taken in."""
        if not self.pending:
            self._since = now
        self.pending += count

    def seconds_left(self, now: float) -> float:
        """How long what is pending waits at most; without end if it waits for its cohort, or there is nothing."""
        return self._max_wait - (now - self._since) if self.pending else math.inf

    def may_write(self, now: float) -> bool:
        """Whether a cohort has come together, or the first of what is pending has waited for as long as it may."""
        return self.pending >= self._settings.cohort or self.seconds_left(now) <= 0

    def wrote(self) -> None:
        """A state with all that was pending was written."""
        self.pending = 0

    def left_out(self) -> int:
        """If this is the end: how many may be in no state. Otherwise all that is pending may be written."""
        return 0 if counts_at_end(self._settings, self.pending) else self.pending


def includes_remainder(settings: CohortSettings) -> bool:
    """Whether what is no cohort is written at the end."""
    return settings.remainder == "include"


def counts_at_end(settings: CohortSettings, pending: int) -> bool:
    """Whether so many may be written if this is the end."""
    return pending >= settings.cohort or includes_remainder(settings)


def can_ever_count(settings: CohortSettings, coming: int) -> bool:
    """Whether so many, if they all still come, may be written at some time."""
    return counts_at_end(settings, coming) or settings.max_wait is not None


def least_growth(settings: CohortSettings, shown: int, steps: int) -> int:
    """By how many what is shown next must exceed what was shown at so many: a cohort, and one of so many steps.

    However long its first record has waited: `max_wait` is about what is stored.
    """
    return max(settings.cohort, shown // steps)


def too_few_to_answer(settings: CohortSettings, counts: Mapping[str, int]) -> dict[str, int]:
    """The arms that have too few for an answer; there is one if there are none such."""
    return _fewer_than(settings.smallest_cell, counts)


def require_enough(settings: CohortSettings, counts: Mapping[str, int]) -> None:
    """Refuse an answer before every arm has enough records for it.

    Raises:
        TooEarly: One has not.
    """
    if too_few_to_answer(settings, counts):
        raise TooEarly(f"no effects yet: every arm needs {settings.smallest_cell} durable records first.")


def least_to_publish(settings: CohortSettings) -> int:
    """How many of every arm must stand behind what is published to all devices while a trial goes on."""
    return max(settings.smallest_cell, settings.cohort)


def too_few_to_publish(settings: CohortSettings, counts: Mapping[str, int]) -> dict[str, int]:
    """The arms that have too few for that."""
    return _fewer_than(least_to_publish(settings), counts)


def too_few_to_send(settings: CohortSettings, units: Mapping[str, int]) -> dict[str, int]:
    """The arms whose tallies may not leave a site; those of an arm without units say nothing, if another has some."""
    few = _fewer_than(settings.cohort, units)
    return {arm: count for arm, count in few.items() if count} if any(units.values()) else few


def _fewer_than(least: int, counts: Mapping[str, int]) -> dict[str, int]:
    return {arm: count for arm, count in counts.items() if count < least}
