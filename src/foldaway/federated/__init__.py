"""Trials whose records stay where they are: what devices and sites send, and what the coordinator makes of it.

``messages`` is what travels. ``coordinator`` holds the tallies of a federated trial and needs no network; the service
room puts it behind HTTP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foldaway.federated.device.device import Device

__all__ = ["Device"]


def __getattr__(name: str) -> Any:
    """The device, loaded when somebody wants one: the coordinator's side has no use for it."""
    if name == "Device":
        from foldaway.federated.device.device import Device

        return Device
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
