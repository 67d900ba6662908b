"""What a device draws by a hash: its arm, and its group."""

from __future__ import annotations

from hashlib import sha256
from itertools import accumulate
from typing import NamedTuple

from foldaway_device.plan import Plan


class Drawn(NamedTuple):
    """What follows from a plan and a device's identity."""

    arm: str
    group: int


def draw(plan: Plan, identity: bytes) -> Drawn:
    """The arm and the group of a device with this identity."""

    def digits(what: str, count: int) -> int:
        return int(sha256(f"foldaway {what}\n{plan.fingerprint}\n".encode() + identity).hexdigest()[:count], 16)

    uniform, group = digits("arm", 13) / 2**52, digits("group", 3) % plan.groups
    uppers = zip(plan.arms, accumulate(plan.arms.values()), strict=True)
    return Drawn(next((arm for arm, upper in uppers if uniform < upper), list(plan.arms)[-1]), group)
