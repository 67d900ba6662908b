"""The part of a plan for records that stay on devices or at sites."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

from msgspec import Meta

from foldaway.plan.part import Count, Part, Seconds
from foldaway.plan.vocabulary import LEVERAGE, MODES, Leverage, ModeName

Share = Annotated[float, Meta(gt=0, le=1, description="a number above 0 and at most 1, for example 0.9")]


class Federated(Part, frozen=True):
    """What devices send, and how long the coordinator waits for it. In short: the mode alone.

    The device is the unit, and `privacy.cohort` counts devices.

    Attributes:
        mode: What a device sends: ``"one-message"`` (its triangular factor, once), ``"scores"`` (factors during the
            trial, its score at the close, which gives CR2 and CR3 too), ``"delta"`` (counts and sums only) or
            ``"sums"`` (the same and a random group, so that the coordinator keeps nothing but sums).
        reply_deadline: Seconds after the close in which reports still count.
        reply_share: The share of the devices whose reports end the wait early; in mode ``scores``, of those in the
            coefficients.
        leverage: In mode ``scores``, a leverage correction to report as well.
        device_records: The most records that a device may have: it takes no more, and the coordinator refuses a message
            that claims more. At sites it limits each unit.

    Example:
        >>> Federated("scores", leverage="CR2").reply_share
        1.0
    """

    TABLE: ClassVar[str] = "federated"
    SHORT: ClassVar[str] = "mode"

    mode: ModeName
    reply_deadline: Seconds = 3_600.0
    reply_share: Share = 1.0
    leverage: Leverage | None = None
    device_records: Count = 1_000

    def faults(self) -> Iterator[str]:
        """What is wrong with the settings taken together."""
        if self.leverage is not None and LEVERAGE not in MODES[self.mode].collects:
            modes = " or ".join(f'"{name}"' for name, mode in MODES.items() if LEVERAGE in mode.collects)
            yield (
                f"`federated.leverage` needs `mode` = {modes}: only a device that still holds its records can correct "
                "for leverage."
            )
