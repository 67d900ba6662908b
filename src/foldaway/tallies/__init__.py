"""The mergeable statistics. A new one is a file here that meets ``Tally`` and a line in ``kinds_of``."""

from foldaway.plan import Plan
from foldaway.tallies.arm import Kinds
from foldaway.tallies.replicates import ReplicatesKind
from foldaway.tallies.scores import Scores, UnitScores

# The names under which the tallies stand in an arm and its state.
RECORDS, UNITS, REPLICATES = "records", "units", "replicates"

# Scores corrected for leverage where the records are; never kept here, only collected.
LEVERAGE = "leverage"


def kinds_of(plan: Plan) -> Kinds:
    """The tallies that each arm of a plan keeps, beside its factor."""
    if plan.federated is not None:
        # No record is seen here, only units; in mode scores these give their scores at the close.
        return {} if plan.mode == "scores" else {UNITS: UnitScores}
    kinds: Kinds = {}
    if _asks_for(plan, "HC"):
        kinds[RECORDS] = Scores
    if plan.complete_units and _asks_for(plan, "CR"):
        kinds[UNITS] = UnitScores
    if plan.bootstrap is not None:
        kinds[REPLICATES] = ReplicatesKind(plan.bootstrap)
    return kinds


def _asks_for(plan: Plan, family: str) -> bool:
    """Whether the plan reports errors of this family; it reports all if it names none."""
    return not plan.errors or any(kind.startswith(family) for kind in plan.errors)
