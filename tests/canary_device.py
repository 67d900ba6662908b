"""A device in a process of its own, for the canary test: what it is told on standard input it does, and says so.

With "hardened" as its first argument it takes all the care that a program around a device can take, with "usual" none.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def main(care: str, address: str, token: str, folder: str) -> None:
    if care == "hardened":
        from foldaway.forgetting.harden import harden

        harden()
    from foldaway.forgetting.harden import forget_now
    from foldaway_device import Device

    device = Device.open(address, store=folder, token=token)
    for line in sys.stdin:
        said: Any = None
        asked = line.split()
        if asked[0] == "record":
            device.record({"revenue": float.fromhex(asked[1]), "before": 1.0})
        elif asked[0] == "report":
            said = device.report(wait=float(asked[1])).state
        elif asked[0] == "forget":
            device.forget()
            forget_now()
        del asked, line
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
