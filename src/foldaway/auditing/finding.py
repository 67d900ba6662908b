"""What an attack found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from foldaway.errors import many
from foldaway.numerics.block import Floats

NEAR = 0.1
"""A value counts as known if it lies within this share of the attacker's claim."""

_SAME = 1e-9


class Range(NamedTuple):
    """Between which two numbers a person's value lies."""

    low: float
    high: float

    @property
    def exact(self) -> bool:
        """Whether the two are one."""
        return self.high - self.low <= _SAME * abs(self.high)

    @property
    def near(self) -> bool:
        """Whether their middle is within a tenth of the value, whichever it is."""
        return self.exact or 0 < self.high - self.low <= NEAR * (self.high + self.low)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """How many records one attack could solve for; a person with several counts as several.

    Attributes:
        attack: The attack's name.
        outcome: Whose values it finds.
        exact: Records whose value it tells exactly: a whole number, or as many of its claims as are expected to hold.
        near: Records whose value it tells to within 10 %; those told exactly are among them.
        claims: For how many records it claims a value.
        numbers: The numbers that it works from.
        needs: What else an attacker must have; empty if these numbers are enough.
        remedy: What would stop it.
    """

    attack: str
    outcome: str
    exact: int
    near: int
    claims: int
    numbers: str
    needs: str = ""
    remedy: str = ""

    @classmethod
    def of(cls, near: int, *, exact: int | None = None, claims: int | None = None, **about: str) -> list[Finding]:
        """The finding of an attack that tells so many records; none if that is nobody.

        Unless `exact` and `claims` say otherwise, it tells them exactly, and makes no other claim.
        """
        exact, claims = (near if each is None else each for each in (exact, claims))
        return [cls(near=near, exact=exact, claims=claims, **about)] if near else []


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """What all attacks together found.

    Attributes:
        trial: The trial's name.
        records: How many records stand behind what was attacked.
        findings: Attacks that solve for somebody. None counts a record that one before it has found.
        attacks: The names of all attacks that were tried.
    """

    trial: str
    records: int
    findings: Sequence[Finding]
    attacks: Sequence[str]

    @property
    def solved(self) -> int:
        """Records of which one outcome is known to within 10 %, from these numbers alone."""
        return _most(each for each in self.findings if not each.needs)

    @property
    def solved_with_keys(self) -> int:
        """The same for whoever also has what the findings need, such as the key and all identifiers."""
        return _most(self.findings)

    def verdict(self) -> str:
        """What to conclude, in a sentence or two."""
        if not self.findings:
            return f"Nobody could be solved for. Attacks that were tried: {', '.join(self.attacks)}."
        if not self.solved:
            needed = {each.needs for each in self.findings}
            others = f"whoever has {' and '.join(sorted(needed))} could solve for"
            solved = many(self.solved_with_keys, "record")
            return f"Nobody could be solved for from these numbers alone; {others} {solved}."
        return f"{many(self.solved, 'record')} could be solved for by whoever reads these numbers in the clear."


def _most(findings: Iterable[Finding]) -> int:
    """Records may be the same in two outcomes, so only the outcome with most of them counts."""
    records: dict[str, int] = {}
    for each in findings:
        records[each.outcome] = records.get(each.outcome, 0) + each.near
    return max(records.values(), default=0)


def distinct(ranges: Iterable[Range], known: Iterable[Range] = ()) -> list[Range]:
    """The ranges that cannot be of one person: any that overlap with another, or with a known one, are left out.

    Example:
        >>> distinct([Range(1, 1), Range(5, 6), Range(5.5, 5.5)], known=[Range(1, 1)])
        [Range(low=5.5, high=5.5)]
    """
    kept = list(known)
    first = len(kept)
    for each in sorted(ranges, key=lambda range_: range_.high - range_.low):
        slack = _SAME * abs(each.high)
        if not any(each.low - slack <= other.high and other.low <= each.high + slack for other in kept):
            kept.append(each)
    return kept[first:]


def both(total: float, square: float) -> list[Range]:
    """The values of two people: Σv and Σv² are two equations for them."""
    apart = np.sqrt(max(square / 2 - total**2 / 4, 0.0))
    values = [float(total / 2 + side * apart) for side in (-1, 1)]
    return [Range(value, value) for value in values]


def largest(count: Floats, total: Floats, low: Floats, high: Floats) -> list[Range]:
    """Bounds of the largest of some non-negative values, of which the number, the sum and bounds of Σv² are known.

    With m the largest, Σv² ≤ m Σv and m² ≤ Σv²; and the mean ≤ m ≤ Σv. If one value is not zero, or one outweighs
    all others, the bounds meet: the p % rule of disclosure control from the attacker's side.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        at_least = np.where(total > 0, np.maximum(low / total, total / count), 0.0)
    at_most = np.minimum(total, np.sqrt(np.maximum(high, 0)))
    return [Range(min(a, b), b) for a, b in zip(at_least.tolist(), at_most.tolist(), strict=True)]
