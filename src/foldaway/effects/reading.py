"""The effects of a trial, whatever it keeps."""

from __future__ import annotations

from dataclasses import replace

from foldaway.effects.analysis import effects_of
from foldaway.effects.effects import Effects
from foldaway.effects.group_analysis import effects_of_groups
from foldaway.effects.segment_analysis import effects_by_segment
from foldaway.plan import Plan
from foldaway.records.faults import Faults, excess
from foldaway.tallies import Arms, Holding, against


def read_effects(
    plan: Plan,
    tallies: Holding,
    dropped: Faults,
    *,
    population: bool = True,
    rounded: bool = False,
    control: str | None = None,
) -> Effects:
    """What tallies say, of moments or of sums: see `Trial.effects`, which also warns."""
    if control is not None:
        plan, tallies = against(control, plan, tallies)
    if isinstance(tallies, Arms):
        return effects_of(plan, tallies.arms, dropped, population=population, rounded=rounded)
    effects = effects_of_groups(plan, tallies, dropped, rounded=rounded)
    if excess(dropped, tallies.n, plan.drop_limit):
        return effects
    return replace(effects, segments=effects_by_segment(plan, tallies, rounded=rounded))
