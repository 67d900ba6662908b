"""`python -m benchmarks` runs all; `python -m benchmarks memory` one of them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from measure import machine

ALL = (
    "startup",
    "one_device",
    "least_squares",
    "wide",
    "bootstrap_kernels",
    "memory",
    "files",
    "groups",
    "questions",
    "warehouse",
    "service_load",
    "single_requests",
    "device_messages",
    "scale",
)


def main() -> None:
    """Run the benchmarks named on the command line, or all."""
    names = sys.argv[1:] or ALL
    unknown = [name for name in names if name not in ALL]
    if unknown:
        sys.exit(f"There is no benchmark {', '.join(unknown)}; there are {', '.join(ALL)}.")
    print(machine())
    for name in names:
        print(f"\n── {name} " + "─" * (70 - len(name)), flush=True)
        importlib.import_module(name).main()


main()
