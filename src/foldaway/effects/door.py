"""The two ways in which results leave: as they are, to whoever owns the trial, or told, to everybody else.

What is told is a map over what is found. It depends on counts and never on values: see `inference.rounding`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from foldaway.effects.checks import Checks
from foldaway.effects.found import By, Found, told
from foldaway.inference.levels import Levels
from foldaway.inference.rounding import coarse_p_value, round_count, rounded_levels
from foldaway.numerics.block import Floats
from foldaway.plan import Plan


class Door:
    """Results as they are."""

    others = False

    def found(self, found: Iterable[Found]) -> list[Found]:
        """What rows are written from."""
        return list(found)

    def levels(self, kinds: dict[By, Levels], carriers: Floats) -> dict[By, Levels]:
        """One estimator's levels of all arms, by kind of error."""
        return kinds

    def checks(self, checks: Checks, plan: Plan) -> Checks:
        """What says whether to trust them."""
        return checks

    def own_notes(self, notes: Sequence[str]) -> Sequence[str]:
        """Notes that are for the owner alone."""
        return notes

    def p_value(self, p: float | None) -> float | None:
        """A p-value that nothing is computed from any more."""
        return p

    def devices(self, n: int) -> int:
        """A count of devices."""
        return n

    @property
    def caveat(self) -> str:
        """What to say after several counts of devices."""
        return ""


class ForOthers(Door):
    """Results as others are told."""

    others = True

    def found(self, found: Iterable[Found]) -> list[Found]:
        """Levels in steps, counts to match."""
        return list(told(found))

    def levels(self, kinds: dict[By, Levels], carriers: Floats) -> dict[By, Levels]:
        """In steps."""
        return rounded_levels(kinds, carriers)

    def checks(self, checks: Checks, plan: Plan) -> Checks:
        """Counts to match, and none of a few."""
        return checks.told(plan)

    def own_notes(self, notes: Sequence[str]) -> Sequence[str]:
        """None: these would say when the first record came that has a level."""
        return ()

    def p_value(self, p: float | None) -> float | None:
        """Cut off after one digit."""
        return coarse_p_value(p)

    def devices(self, n: int) -> int:
        """Rounded, and never to none if there is one.

        Example:
            >>> TOLD.devices(1), TOLD.devices(0), TOLD.devices(137), OWN.devices(137)
            (2, 0, 135, 137)
        """
        return max(round_count(n), 2) if n else n

    @property
    def caveat(self) -> str:
        """That counts were rounded one by one."""
        return " Each of these counts is rounded by itself, so they need not add up."


OWN, TOLD = Door(), ForOthers()
