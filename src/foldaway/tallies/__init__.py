"""The mergeable statistics, and what a trial holds of them under its plan."""

from foldaway.tallies.grouped import Grouped
from foldaway.tallies.held import Held
from foldaway.tallies.holding import (
    against,
    arms_of,
    emptied,
    empty_holding,
    grouped_of,
    restored_holding,
)
from foldaway.tallies.lean import Lean
from foldaway.tallies.rich import Rich

__all__ = [
    "Grouped",
    "Held",
    "Lean",
    "Rich",
    "against",
    "arms_of",
    "emptied",
    "empty_holding",
    "grouped_of",
    "restored_holding",
]
