"""Do both servers of mode shares add up the same reports, each once, whatever crashes, and whatever comes twice?

Devices and servers crash at random moments of random schedules; messages and answers are lost, delayed, repeated and
reordered, also between the servers.
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

from pair_schedules import DEVICES, PairSchedule, PairTale  # noqa: E402
from postgres import quick_folder  # noqa: E402
from studies.findings import Findings, counted, options_of, publish  # noqa: E402

NAME = "pair_schedules"


def one(seed: int) -> PairTale:
    """One schedule."""
    with tempfile.TemporaryDirectory(dir=quick_folder()) as folder:
        return PairSchedule(Path(folder), seed).run()


def study(schedules: int, seed: int, processes: int) -> PairTale:
    """What became of the devices."""
    found, seeds = PairTale(), range(seed * 10**6, seed * 10**6 + schedules)
    with ProcessPoolExecutor(processes) as pool:
        for _, tale in counted(zip(seeds, pool.map(one, seeds, chunksize=5), strict=True), schedules, "schedules"):
            found += tale
    return found


def findings(found: PairTale) -> Findings:
    """The table and what it says."""
    events = ", ".join(f"{what} {times:,}" for what, times in found.events.most_common())
    return Findings(
        "Random schedules over two servers",
        f"""Each trial in mode shares has {DEVICES} devices with one record each, a leader and a helper, and a cohort of
        1, 2 or 4. Devices are killed at any change of what they keep, and some withdraw. Either server crashes
        before or after any request, the leader also while it waits for the helper. Requests and answers are lost, late,
        repeated and overtaken, between devices and leader and between the servers, even after the end.

        The code of devices and servers is real, and so are the servers' SQLite databases, which are opened again after
        a crash. The network is simulated, and everything runs in one process. (`tests/federated/test_shares.py` kills
        two real server processes with SIGKILL.)

        Before and after the end, the report numbers that each server has added up are compared. Device i has the record
        2^i, so the sum that both servers' halves come to says whether each report is in it, and only once. “Published”
        are the trials in which enough reports came for effects. “Wrong” is anything that must not be: sets that differ,
        a report that is lost or counted twice, a device that was told that it is counted and is not.""",
        ["schedules", "devices", "counted", "published", "wrong"],
        [[f"{n:,}" for n in (found.schedules, found.devices, found.counted, found.published, len(found.wrong))]],
        f"""These events happened: {events}.""",
    )


def main(arguments: Sequence[str] = ()) -> None:
    """Run the study."""
    options = options_of(NAME, arguments, schedules=1_000, seed=1, processes=2)
    found = study(options.schedules, options.seed, options.processes)
    if found.wrong:
        sys.exit(f"{len(found.wrong)} things that must not be, such as: {found.wrong[0]}")
    publish(findings(found), NAME, options)
