"""Is each device of a federated trial counted once or reported missing, whatever crashes, and whatever comes twice?

Devices and coordinator crash at random moments of random schedules; messages and answers are lost, delayed, repeated
and reordered. Every record has a digit of its own in the final tallies, which says how often it was counted.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

# One thread for linear algebra: several schedules run side by side.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from postgres import quick_folder  # noqa: E402
from schedules import DEVICES, MODES, Schedule, Tale  # noqa: E402
from studies.findings import Findings, counted, options_of, publish  # noqa: E402

NAME = "federated_schedules"
FILES_EVERY = 10


def one(seed: int) -> Tale:
    """One schedule; of every ten, one whose devices keep their state in files."""
    with tempfile.TemporaryDirectory(dir=quick_folder()) as folder:
        return Schedule(Path(folder), seed, files=seed % FILES_EVERY == 0).run()


def study(schedules: int, seed: int, processes: int) -> dict[str, Tale]:
    """What became of the devices, by mode."""
    found = {mode: Tale() for mode in MODES}
    seeds = range(seed * 10**6, seed * 10**6 + schedules)
    with ProcessPoolExecutor(processes) as pool:
        tales = pool.map(one, seeds, chunksize=5)
        for number, tale in counted(zip(seeds, tales, strict=True), schedules, "schedules"):
            found[MODES[number % len(MODES)]] += tale
    return found


def findings(found: dict[str, Tale]) -> Findings:
    """The table and what it says."""
    rows = [
        [
            mode,
            f"{tale.schedules:,}",
            f"{tale.devices:,}",
            f"{tale.counted:,}",
            f"{tale.missing:,}",
            f"{tale.never:,}",
            f"{len(tale.wrong):,}",
        ]
        for mode, tale in found.items()
    ]
    whole = Tale()
    for tale in found.values():
        whole += tale
    events = ", ".join(f"{what} {times:,}" for what, times in whole.events.most_common())
    return Findings(
        "Random schedules of a federated trial",
        f"""{DEVICES} devices with one to three records each, and a cohort of 1, 2 or 3. A schedule has 5 to 60 steps: a
        device records and reports, an old message comes again, or the coordinator crashes. On the way, a device may be
        killed before or after any change of its state and before or after any message; the coordinator may crash before
        or after any message; messages are lost, or come late, or again and again in any order, also after the close;
        answers are lost.

        Real: the device's code, the coordinator's code and its SQLite database, which is opened anew after a crash; one
        schedule in ten has the devices' state in their SQLite files. Simulated, all in one process: the network and
        the kills, which come between statements, not within a transaction.
        (`tests/federated/device/test_crashes.py` kills
        real processes with SIGKILL.)

        Every record carries a digit of its own, 4^i in an outcome, so that the sum of that outcome says how often each
        record is in the tallies. In mode scores these are the moments; of the replies, their number must be that of the
        devices which know that they are counted, and their sum must be that which the moments imply.

        Counted: devices that are in the tallies once, and know it. Missing: enrolled, not in, and counted as missing by
        the coordinator. Never heard of: those that were never enrolled. Wrong: anything else, such as a record that is
        in twice, or a device that was told to be counted and is not.""",
        ["mode", "schedules", "devices", "counted", "missing", "never heard of", "wrong"],
        rows,
        f"""What happened: {events}.""",
    )


def main(arguments: Sequence[str] = ()) -> None:
    """Run the study."""
    options = options_of(NAME, arguments, schedules=1_000, seed=1, processes=2)
    found = study(options.schedules, options.seed, options.processes)
    wrong = [sentence for tale in found.values() for sentence in tale.wrong]
    if wrong:
        sys.exit(f"{len(wrong)} things that must not be, such as: {wrong[0]}")
    publish(findings(found), NAME, options)
