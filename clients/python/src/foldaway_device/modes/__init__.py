"""The modes that a device has; a new one is a file here, and its object in this list."""

from __future__ import annotations

from foldaway_device.errors import PlanError
from foldaway_device.modes.delta import Delta
from foldaway_device.modes.mode import Mode
from foldaway_device.modes.one_message import OneMessage
from foldaway_device.modes.scores import Scores
from foldaway_device.modes.shares import Shares
from foldaway_device.modes.sums import Sums

MODES: dict[str, Mode] = {mode.name: mode for mode in (Delta(), OneMessage(), Scores(), Sums(), Shares())}


def mode_of(name: str) -> Mode:
    """The mode of this name.

    Raises:
        PlanError: This device has no such mode, or not what it needs.
    """
    if name in MODES:
        MODES[name].require()
        return MODES[name]
    raise PlanError(f"this device does not have the plan's mode {name!r}; it has {', '.join(MODES)}.")
