"""Waiting for the reports of devices, and who they are, for a person at a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from foldaway.cli.terminal.leaving import interruptible
from foldaway.cli.terminal.words import in_lines
from foldaway.table import text_table

if TYPE_CHECKING:
    from foldaway.client import Client

_PAUSE = 1.0


def close_and_wait(
    client: Client, name: str, deadline: float | None, share: float | None, without_effects: bool
) -> dict[str, Any]:
    """Close a trial; where records stay on devices, show their reports coming in until it is closed.

    Returns:
        The final answer. Interrupted, the server goes on waiting, and the same command without options shows it.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    answer = client.finish(name, deadline=deadline, share=share, without_effects=without_effects)
    if answer["final"]:
        return answer
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[left]}"))
    with (
        interruptible(
            f"stopped looking; the server goes on waiting for reports. foldaway trial close {name} shows it."
        ),
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar,
    ):
        task = bar.add_task("waiting for reports", total=None, left="")
        while not answer["final"]:
            told = answer["federated"]
            left = f"until {_moment(told['deadline'])}"
            total = sum((told.get("with_moments") or told["enrolled"]).values())
            bar.update(task, total=total, completed=sum(told["reported"].values()), left=left)
            time.sleep(_PAUSE)
            answer = client.finish(name)
    return answer


def who(told: dict[str, Any], pending: int = 0) -> str:
    """The devices of a trial by arm, as a table, its stage, and what does not count yet.

    Args:
        told: What the server says about the devices.
        pending: Messages that wait in the server's memory for their cohort.

    Example:
        >>> print(who({"mode": "delta", "stage": "open", "deadline": None, "integrity": None,
        ...            "enrolled": {"a": 1200}, "reported": {"a": 1000}, "missing": {"a": 200}}, pending=70))
        federated (delta), open
        arm  enrolled  reported  not yet
        ───  ────────  ────────  ───────
        a       1,200     1,000      200
        <BLANKLINE>
        Pending reports: 70. They are in this server's memory until a cohort has come
        together, and in no other count yet.
    """
    counts = [told["enrolled"], told["reported"], told["missing"]]
    headings = ["enrolled", *_headings(told)]
    if told.get("with_moments") is not None:
        counts.insert(1, told["with_moments"])
        headings.insert(1, "with moments")
    rows = [[arm, *(f"{count[arm]:,}" for count in counts)] for arm in told["enrolled"]]
    stage = told["stage"]
    if stage == "replying" and told["deadline"] is not None:
        stage += f"{' until' if told['deadline'] > time.time() else '; its deadline was'} {_moment(told['deadline'])}"
    table = text_table(["arm", *headings], rows, left=1)
    return "\n\n".join([f"federated ({told['mode']}), {stage}\n{table}", *map(in_lines, _notes(told, pending))])


def _headings(told: dict[str, Any]) -> tuple[str, str]:
    """Of those that have reported and those that have not: nobody is missing as long as a report still counts."""
    reported = "replied" if told["mode"] == "scores" else "reported"
    return reported, "missing" if told["stage"] == "closed" else "not yet"


def _notes(told: dict[str, Any], pending: int) -> Iterator[str]:
    scores, is_open = told["mode"] == "scores", told["stage"] == "open"
    if told["stage"] == "replying" and told.get("note"):
        yield f"{told['note'][0].upper()}{told['note'][1:]}"
    if scores and is_open:
        yield "Devices send moments while the trial is open; they are asked for replies at its close."
    if pending:
        what = "reports" if not scores else "messages with moments" if is_open else "replies"
        yield (
            f"Pending {what}: {pending:,}. They are in this server's memory until a cohort has come together, and in "
            "no other count yet."
        )


def _moment(seconds: float) -> str:
    """A time where the person is, with its distance from UTC."""
    return datetime.fromtimestamp(seconds).astimezone().isoformat(" ", "seconds")


def alarm(told: dict[str, Any]) -> str | None:
    """What must be read before any effect, if there is something."""
    judged = told["integrity"]
    if judged is None or judged["verdict"] != "altered":
        return None
    return in_lines(f"! {judged['meaning']}", indent="  ")
