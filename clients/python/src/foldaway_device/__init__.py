"""Devices of foldaway trials: records stay on the device, and one report leaves it."""

from foldaway_device.device import Device
from foldaway_device.errors import FoldawayError, PlanError, RecordError, ServerError, StateError
from foldaway_device.status import Status

__all__ = ["Device", "FoldawayError", "PlanError", "RecordError", "ServerError", "StateError", "Status"]
