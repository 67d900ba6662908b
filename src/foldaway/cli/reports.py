"""Waiting for the reports of devices, and who they are, for a person at a terminal."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

from foldaway.cli.words import in_lines
from foldaway.table import text_table

if TYPE_CHECKING:
    from foldaway.client import Client

_PAUSE = 1.0


def close_and_wait(
    client: Client, name: str, deadline: float | None, share: float | None, without_effects: bool
) -> dict[str, Any]:
    """Close a trial; where records stay on devices, show their reports coming in until it is closed.

    Returns:
        The final answer. Interrupted, the server goes on waiting, and the same command again shows it.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    answer = client.finish(name, deadline=deadline, share=share, without_effects=without_effects)
    if answer["final"]:
        return answer
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[left]}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("waiting for reports", total=None, left="")
        while not answer["final"]:
            told = answer["federated"]
            left = f"until {datetime.fromtimestamp(told['deadline']):%Y-%m-%d %H:%M:%S}"
            total = sum(told["enrolled"].values())
            bar.update(task, total=total, completed=sum(told["reported"].values()), left=left)
            time.sleep(_PAUSE)
            answer = client.finish(name)
    return answer


def who(told: dict[str, Any]) -> str:
    """The devices of a trial by arm, as a table, and its stage.

    Example:
        >>> print(who({"mode": "delta", "stage": "open", "deadline": None, "integrity": None,
        ...            "enrolled": {"a": 1200}, "reported": {"a": 1000}, "missing": {"a": 200}}))
        federated (delta), open
        arm  enrolled  reported  missing
        ───  ────────  ────────  ───────
        a       1,200     1,000      200
    """
    counts = [told[column] for column in ("enrolled", "reported", "missing")]
    rows = [[arm, *(f"{count[arm]:,}" for count in counts)] for arm in told["enrolled"]]
    stage = told["stage"]
    if stage == "replying" and told["deadline"] is not None:
        stage += f" until {datetime.fromtimestamp(told['deadline']):%Y-%m-%d %H:%M:%S}"
    table = text_table(["arm", "enrolled", "reported", "missing"], rows, left=1)
    return f"federated ({told['mode']}), {stage}\n{table}"


def alarm(told: dict[str, Any]) -> str | None:
    """What must be read before any effect, if there is something."""
    judged = told["integrity"]
    if judged is None or judged["verdict"] != "altered":
        return None
    return in_lines(f"! {judged['meaning']}", indent="  ")
