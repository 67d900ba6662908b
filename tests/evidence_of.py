"""A trial with a ledger, for tests of what it proves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import foldaway as fa
from foldaway.evidence.ledger import Ledger
from foldaway.trial import Trial, finish_ending

PLAN = fa.Plan(name="checkout", arm="variant", unit="user", arms={"a": 0.5, "b": 0.5}, outcomes=["revenue"])


def records(start: int = 0, n: int = 400) -> dict[str, list[Any]]:
    """Records of so many customers."""
    people = range(start, start + n)
    return {
        "variant": ["ab"[i % 2] for i in people],
        "user": [f"customer-{i}" for i in people],
        "revenue": [float(i % 9) for i in people],
    }


def folded(start: int = 0, n: int = 400) -> Trial:
    """A trial of these."""
    trial = Trial(PLAN)
    trial.fold(records(start, n))
    return trial


def ended(trial: Trial, file: Path) -> Ledger:
    """The ledger of a trial that was saved and ended, as the command line does it."""
    trial.save(file)
    trial, positions = Trial.opened(file)
    trial.conclude(without_effects=True)
    trial.save(file, positions=positions)
    return finish_ending(file)
