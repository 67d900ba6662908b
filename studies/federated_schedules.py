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
        f"""Each trial has {DEVICES} devices with one to three records each, and a cohort of 1, 2 or 3. A schedule
        has 5 to 60 steps: a device records and reports, an old message comes again, or the coordinator crashes.
        Meanwhile, a device may be killed before or after any change of its state and before or after any message. The
        coordinator may crash before or after any message. Messages are lost, late, repeated or out of order, even after
        the end, and answers are lost.

        The code of the devices and of the coordinator is real, and so is the coordinator's SQLite database, which is
        opened again after a crash. In one schedule in ten, the devices' state is in SQLite files as well. Everything
        runs in one process, with a simulated network and simulated kills, which come between statements and not within
        a transaction. (`tests/clients/python/test_crashes.py` kills real processes with SIGKILL.)

        Every record has a digit of its own, 4^i in an outcome, so that the sum of that outcome says how often each
        record is in the tallies. In mode scores, the tallies are the moments. There, the number of replies must be the
        number of devices that know that they are counted, and the replies must add up to what the moments imply.

        “Counted” devices are in the tallies once, and know it. “Missing” devices are enrolled but not in the tallies,
        and the coordinator counts them as missing. “Never heard of” are those that were never enrolled. “Wrong” is
        anything else, such as a record that is counted twice, or a device that was told that it is counted and is
        not.""",
        ["mode", "schedules", "devices", "counted", "missing", "never heard of", "wrong"],
        rows,
        f"""These events happened: {events}.""",
    )


def main(arguments: Sequence[str] = ()) -> None:
    """Run the study."""
    options = options_of(NAME, arguments, schedules=1_000, seed=1, processes=2)
    found = study(options.schedules, options.seed, options.processes)
    wrong = [sentence for tale in found.values() for sentence in tale.wrong]
    if wrong:
        sys.exit(f"{len(wrong)} things that must not be, such as: {wrong[0]}")
    publish(findings(found), NAME, options)
