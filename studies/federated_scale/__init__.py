"""What does a federated trial with very many devices cost its coordinator, and does it still give the right answer?

``population`` is the simulated world, ``clients`` the devices of one process, ``run`` the coordinator's process and the
whole trial, and ``summary`` what came out, beside the analysis of kept rows that it is held against.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from studies import findings as pages
from studies.federated_scale.population import World
from studies.federated_scale.run import simulate
from studies.federated_scale.summary import Summary
from studies.findings import Findings, options_of, publish

NAME = "federated_scale"

# Bytes of a hashed report number as an object in memory: whoever kept one of every device would grow by more.
_NUMBER = 49


def findings(found: Sequence[Summary], processes: int) -> Findings:
    """The table and what it says."""
    rows = []
    for summary in found:
        apart, errors_apart = summary.differences
        rows.append(
            [
                summary.world.mode,
                f"{summary.world.clients:,}",
                f"{summary.reported:,}",
                f"{summary.missing:,}",
                f"{summary.world.clients / summary.seconds:,.0f}",
                f"{summary.messages_per_second:,.0f}",
                f"8·{summary.report_numbers} + {summary.report_bytes - 8 * summary.report_numbers:.0f}",
                f"{summary.bytes_per_client:,.0f}",
                f"{1000 * summary.work_per_message:.2f}",
                f"{summary.disk_per_client:,.0f}",
                " / ".join("-" if m is None else f"{m / 2**20:,.0f}" for m in summary.memory),
                f"{apart:.0e}",
                f"{errors_apart:.0e}",
            ]
        )
    verdicts = [s.integrity["verdict"] for s in found if s.integrity is not None]
    told = f" Integrity in mode scores: {', '.join(verdicts)}." if verdicts else ""
    return Findings(
        "A federated trial with very many devices",
        f"""The real device code runs, with its state in memory, in {processes} processes
        with 16 connections each, against a real `foldaway serve` on the same machine (SQLite, HTTP on loopback).
        Devices join, take one to five records, and report; 10 % never report, and 5 % report after the end. One in
        twenty of the others asks after the end whether it was counted. In mode scores, all devices send moments, and
        those 15 % do not reply.

        The bytes of a report are its numbers and what surrounds them, without HTTP's own headers. The bytes per client
        are those of all its messages, including those sent again until they were durable. Memory is the coordinator's
        resident MiB at the start, at half time and at the end. The last two columns give how far the effect (in
        standard errors) and its CR1 error (relative) are from an analysis of kept rows by statsmodels; the distance is
        that of rounding, since levels are shown to a quarter of their standard error. In mode scores, that analysis has
        the rows of all clients, so the error differs by what the missing replies would have said.""",
        [
            "mode",
            "clients",
            "reported",
            "missing",
            "clients/s",
            "messages/s",
            "bytes of a report",
            "bytes per client",
            "processor, ms/message",
            "disk, bytes/client",
            "memory, MiB",
            "effect apart",
            "error apart",
        ],
        rows,
        f"""{memory_told(found)} For each device, its database keeps one row with a hashed number and a mark, and in
        mode scores one more for each message of moments. With the table's index and pages, this comes to the bytes
        above.{told}""",
    )


def memory_told(found: Sequence[Summary]) -> str:
    """What the measured memory says about its growth with the number of devices."""
    grown = {summary.world.mode: growth for summary in found if (growth := summary.growth) is not None}
    if not grown:
        return "The coordinator's memory could not be measured here."
    told = ", ".join(f"{growth:+,.0f} bytes per device in mode {mode}" for mode, growth in grown.items())
    flat = max(grown.values()) < _NUMBER
    verdict = (
        "less than a device's number alone would take, so it keeps nothing of a device in memory"
        if flat
        else "which is not flat: buffers that are still warming up, or something is kept of every device"
    )
    return f"In the second half of a trial the coordinator's memory has grown by {told}: {verdict}."


def main(arguments: Sequence[str] = ()) -> None:
    """Run the study."""
    options = options_of(NAME, arguments, clients=100_000, scores=50_000, processes=2, seed=1)
    # In mode scores a device sends several messages.
    sizes = {"one-message": options.clients, "scores": options.scores, "delta": options.clients}
    found = []
    for mode, clients in sizes.items():
        if not clients:
            continue
        world = World(clients, mode, drop_out=0.1, late=0.05, seed=options.seed, ask_again=0.05)
        found.append(simulate(world, processes=options.processes, progress=_Told(mode, clients)))
    publish(findings(found, options.processes), NAME, options)
    if options.write:
        page = pages.PAGES / f"{NAME}.md"
        same = "the seed makes it the same in every run."
        text = page.read_text("utf-8").replace(same, "speeds and memory differ from run to run.")
        page.write_text(text, encoding="utf-8")


class _Told:
    """Says on standard error how far the simulation is, every tenth of it."""

    def __init__(self, mode: str, clients: int) -> None:
        self._mode = mode
        self._clients = clients
        self._done: dict[str, int] = {}

    def __call__(self, what: str, done: int) -> None:
        before = self._done.get(what, 0)
        self._done[what] = before + done
        if 10 * before // self._clients < 10 * self._done[what] // self._clients:
            print(f"{self._mode}, {what}: {self._done[what]:,} of {self._clients:,}", file=sys.stderr, flush=True)
