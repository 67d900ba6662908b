"""What readers see of a trial besides its effects: as of a tick, and devices only after a cohort of them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import msgspec

from foldaway.account.pace import Pace
from foldaway.service.collecting.answers import Participation


class Board:
    """What was last shown to readers, by trial."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._shown: dict[str, tuple[int, Hashable, Any]] = {}
        self._devices: dict[str, tuple[int, Participation]] = {}

    def shown(self, name: str, event: Hashable, now: Any) -> Any:
        """What is shown of a trial: as of this tick's first look, or of the last event that an administrator caused."""
        tick = self._pace.tick()
        last = self._shown.get(name)
        if last is None or last[:2] != (tick, event):
            self._shown[name] = last = tick, event, now
        return last[2]

    def devices(self, name: str, now: Participation, cohort: int) -> Participation:
        """Who takes part: rounded counts, of a time when a cohort and some more had joined since the last ones."""
        joined = sum(now.enrolled.values())
        due, last = self._devices.get(name, (0, now))
        if joined >= due or now.stage != last.stage:
            self._devices[name] = joined + cohort + self._pace.beyond(cohort), now
            return now.rounded()
        counts = {field: getattr(last, field) for field in ("enrolled", "reported", "missing", "with_moments")}
        return msgspec.structs.replace(now, **counts).rounded()
