"""The part of a plan for effects that are released once, with noise, under a privacy budget."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from foldaway.plan.part import Count, Part

Epsilon = Annotated[float, Meta(gt=0, le=20, description="a number above 0 and at most 20, for example 1.0")]
Delta = Annotated[float, Meta(gt=0, le=1e-3, description="a number above 0 and at most 0.001, for example 1e-6")]
NoisyGroups = Annotated[int, Meta(ge=8, le=1024, description="a power of two from 8 to 1,024")]


class Release(Part, frozen=True):
    """A release with noise: differentially private, (ε, δ), and spent once. In short: ε alone.

    Until the release nothing exact is told; after it, the exact tallies are gone.

    Attributes:
        epsilon: ε: how far one unit can move the odds of any answer, as an exponent.
        delta: δ: the chance that it moves them further; well below one over the number of units.
        unit_records: With `complete_units`, the most records of a unit that are taken; further ones are faulty. Noise
            grows with it.
        noisy_groups: Into how many groups units are dealt for the release. Noise grows with its square root, so take
            more than 16 only where it is small beside the outcomes' own spread.

    Example:
        >>> Release(1.0).delta
        1e-06
    """

    TABLE: ClassVar[str] = "release"
    SHORT: ClassVar[str] = "epsilon"

    epsilon: Epsilon
    delta: Delta = 1e-6
    unit_records: Count | None = None
    noisy_groups: NoisyGroups = 16
