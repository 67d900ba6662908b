"""The bootstrap that a plan asks for."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from foldaway.errors import PlanError

Weights = Literal["poisson", "double-or-nothing"]


class Bootstrap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many replicates, and which weights a unit gets in each.

    Attributes:
        replicates: The number of replicates.
        weights: ``"poisson"`` for Poisson(1), or ``"double-or-nothing"`` for 0 or 2 with equal probability (Owen and
            Eckles 2012), several times as fast.
    """

    replicates: int = 1000
    weights: Weights = "poisson"

    def __post_init__(self) -> None:
        if isinstance(self.replicates, bool) or not isinstance(self.replicates, int):
            raise PlanError("`replicates` must be a whole number.")
        if self.weights not in get_args(Weights):
            raise PlanError(f"`weights` must be one of {', '.join(get_args(Weights))}.")
