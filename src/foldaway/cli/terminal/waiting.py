"""Waiting for the reports of devices, and who they are, for a person at a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from foldaway.cli.terminal.leaving import interruptible
from foldaway.cli.terminal.progress import progress_bar
from foldaway.cli.terminal.words import in_lines, tell
from foldaway.plan.vocabulary import MODES
from foldaway.table import text_table

if TYPE_CHECKING:
    from foldaway.client import Client

_PAUSE = 1.0


def end_and_wait(client: Client, name: str, **request: Any) -> dict[str, Any]:
    """End a trial as `Client.end` does; where records stay on devices, show their reports until it has ended.

    Interrupted, the server goes on waiting, and the same command without options shows it.
    """
    from rich.progress import MofNCompleteColumn, TextColumn

    answer = client.end(name, **request)
    if answer["final"]:
        return answer
    share = request.get("share")
    enough = "enough devices" if share is None else f"{100 * share:g} % of the devices"
    # When a release ends does not depend on how many have reported.
    sooner = f", or until {enough} have reported" if answer["federated"]["enrolled"] else ""
    tell(f"Waiting until {_moment(answer['federated']['deadline'])}{sooner}.")
    with (
        interruptible(f"stopped watching; the server still waits for reports. foldaway end {name} shows it."),
        progress_bar(MofNCompleteColumn(), TextColumn("{task.fields[left]}")) as bar,
    ):
        task = bar.add_task("waiting for reports", total=None, left="")
        while not answer["final"]:
            about = answer["federated"]
            left = f"until {_moment(about['deadline'])}"
            total = (
                sum((about.get("with_moments") or about["enrolled"]).values()) or None
            )  # a release counts no devices
            bar.update(task, total=total, completed=sum(about["reported"].values()), left=left)
            time.sleep(_PAUSE)
            answer = client.end(name)
    return answer


def who(about: dict[str, Any]) -> str:
    """The devices of a trial by arm, as a table, its stage, and what does not count yet.

    Example:
        >>> print(who({"mode": "delta", "stage": "open", "deadline": None, "integrity": None,
        ...            "enrolled": {"a": 1200}, "reported": {"a": 1000}, "missing": {"a": 200}}))
        federated (delta), open
        arm  enrolled  reported  not yet
        ───  ────────  ────────  ───────
        a       1,200     1,000      200
        <BLANKLINE>
        Reports that wait for their cohort are in the server's memory, and in none of
        these counts yet.
    """
    counts = [about["enrolled"], about["reported"], about["missing"]]
    # Nobody is missing as long as a report still counts.
    others = "missing" if about["stage"] == "ended" else "not yet"
    headings = ["enrolled", "replied" if MODES[about["mode"]].at_end else "reported", others]
    if about.get("with_moments") is not None:
        counts.insert(1, about["with_moments"])
        headings.insert(1, "with moments")
    rows = [[arm, *(f"{count[arm]:,}" for count in counts)] for arm in about["enrolled"]]
    stage = about["stage"]
    if stage == "replying" and about["deadline"] is not None:
        stage += f"{' until' if about['deadline'] > time.time() else '; its deadline was'} {_moment(about['deadline'])}"
    table = text_table(["arm", *headings], rows, left=1) if rows else "Devices are not counted: see `release`."
    tables = [f"federated ({about['mode']}), {stage}\n{table}"]
    if sites := about.get("sites"):
        tables.append(text_table(["site", "units"], [[site, f"{n:,}"] for site, n in sites.items()]))
    return "\n\n".join([*tables, *map(in_lines, _notes(about))])


def _notes(about: dict[str, Any]) -> Iterator[str]:
    replies, is_open = MODES[about["mode"]].at_end, about["stage"] == "open"
    if about["stage"] == "replying" and about.get("note"):
        yield f"{about['note'][0].upper()}{about['note'][1:]}"
    if replies and is_open:
        yield "Devices send moments while the trial is open; they are asked for replies at its end."
    if about["stage"] != "ended":
        what = "Reports" if not replies else "Messages with moments" if is_open else "Replies"
        yield f"{what} that wait for their cohort are in the server's memory, and in none of these counts yet."


def _moment(seconds: float) -> str:
    """A time where the person is, with its distance from UTC."""
    return datetime.fromtimestamp(seconds).astimezone().isoformat(" ", "seconds")


def alarm(about: dict[str, Any]) -> str | None:
    """What must be read before any effect, if there is something."""
    judged = about["integrity"]
    if judged is None or judged["verdict"] != "altered":
        return None
    return in_lines(f"! {judged['meaning']}", indent="  ")
