"""What a device costs the machine that it runs on: bytes, the start, memory, and each record."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "clients/python"
sys.path.insert(0, str(PACKAGE / "src"))

from measure import best_times, show  # noqa: E402

from foldaway_device import Device  # noqa: E402

PLAN = (
    b'{"name":"d","arm":"g","arms":{"a":0.5,"b":0.5},"outcomes":["y"],"covariates":["x"],'
    b'"federated":{"mode":"one-message"}}'
)

# Each prints its largest memory, in KiB; what Linux says of a child otherwise includes its parent's.
EMPTY = "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
RECORDED = f"""
from foldaway_device import Device  # noqa: E402
device = Device.open({PLAN!r}, store=sys.argv[1])
device.record(dict(y=1.5, x=2.5))
{EMPTY}
"""


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", f"{folder}/wheel"]
        subprocess.run(build, cwd=PACKAGE, check=True, capture_output=True)
        (wheel,) = (file.stat().st_size for file in Path(folder, "wheel").iterdir())
        installed = sum(file.stat().st_size for file in (PACKAGE / "src").rglob("*.py"))
        device = Device.open(PLAN, store=f"{folder}/device")
        times = best_times(
            {
                "empty": lambda: _python("pass"),
                "import": lambda: _python("import foldaway_device"),
                "record": lambda: _record(device, 20),
            },
            rounds=9,
        )
        memory = int(_python(RECORDED, f"{folder}/device")) / 1024
        own = int(_python(EMPTY)) / 1024
    rows = [
        ["the wheel", f"{wheel / 1000:.0f} kB"],
        ["its modules", f"{installed / 1000:.0f} kB"],
        ["`import foldaway_device`, beyond Python's own start", f"{1000 * (times['import'] - times['empty']):.0f} ms"],
        ["memory of a process that has recorded", f"{memory:.0f} MiB"],
        ["of which Python's own", f"{own:.0f} MiB"],
        ["a record, durable when `record` returns", f"{1000 * times['record'] / 20:.1f} ms"],
    ]
    show("A device, best of nine rounds", rows, ["", ""])


def _record(device: Device, times: int) -> None:
    for _ in range(times):
        device.record({"y": 1.5, "x": 2.5})


def _python(code: str, *arguments: str) -> str:
    """What a fresh process prints, with the client of this tree."""
    program = f"import sys; sys.path.insert(0, {str(PACKAGE / 'src')!r})\n{code}"
    kept = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # bytecode, as an installed package has it
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], check=True, capture_output=True, text=True, env=kept
    )
    return done.stdout


if __name__ == "__main__":
    main()
