"""The tallies of an arm, by name. A new one is a file here that meets ``Tally`` and a line in ``KINDS``."""

from collections.abc import Callable
from functools import partial
from typing import cast

from foldaway.plan import Bootstrap, Plan
from foldaway.plan.reported import tallies_of
from foldaway.plan.vocabulary import RECORDS, REPLICATES, UNITS
from foldaway.tallies.moments.arm import Kinds
from foldaway.tallies.moments.replicates import Replicates
from foldaway.tallies.moments.scores import Scores, UnitScores
from foldaway.tallies.moments.tally import Kind

__all__ = ["KINDS", "RECORDS", "REPLICATES", "UNITS", "kinds_of"]

KINDS: dict[str, Callable[[Plan], Kind]] = {
    RECORDS: lambda _: Scores.empty,
    UNITS: lambda _: UnitScores.empty,
    REPLICATES: lambda plan: partial(Replicates.empty, cast(Bootstrap, plan.bootstrap)),
}
"""How each tally of the vocabulary is made for a plan that keeps it."""


def kinds_of(plan: Plan) -> Kinds:
    """The tallies that each arm of a plan keeps, beside its factor."""
    wanted = tallies_of(plan)
    return {name: kind(plan) for name, kind in KINDS.items() if name in wanted}
