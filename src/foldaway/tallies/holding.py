"""What a trial of a plan holds: before its first record, and from a state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from foldaway.errors import EstimateError, StateError
from foldaway.keeping.state import decode_part
from foldaway.plan import Plan
from foldaway.plan.vocabulary import MOMENTS
from foldaway.tallies.complete_cases import CompleteCases
from foldaway.tallies.grouped import Grouped, GroupedState, StateBeside
from foldaway.tallies.held import Held
from foldaway.tallies.histogram import MOST_GROUPS, Histogram, HistogramShape
from foldaway.tallies.lean import Lean
from foldaway.tallies.moments import Arms, ArmTally
from foldaway.tallies.predictor import Predictor, predictor_of
from foldaway.tallies.release import restored_release
from foldaway.tallies.rich import FOLDS, Rich
from foldaway.tallies.segment import Segment, first_levels
from foldaway.tallies.sums import Sums, SumsShape


def empty_holding(plan: Plan) -> Held:
    """What a trial of this plan holds before its first record."""
    return _empty(plan) if plan.keeps_sums else Arms.empty(plan)


def lean_cells(plan: Plan, levels: int, why: str) -> Lean:
    """Sums of no records, with an arm for each arm and level, and why outcomes are not adjusted if they are not."""
    return _cells(plan, levels).fixed(None, why=why)


def restored_holding(state: Any, plan: Plan) -> Held:
    """What a trial of this plan held, from its state."""
    return _restored(state, plan) if plan.keeps_sums else Arms.restore(state, plan)


def grouped_of(held: Held) -> Grouped:
    """What is held by group, by a trial that is sure to hold such."""
    assert isinstance(held, Grouped)
    return held


def arms_of(held: Held) -> Sequence[ArmTally]:
    """The tallies by arm, of a trial that keeps moments; another has none."""
    return () if held.arms is None else held.arms.by_arm


def against(control: str, held: Held) -> Held:
    """The same records with another arm in the first place of their plan, as all others are compared with that.

    Raises:
        EstimateError: There is no such arm.
    """
    plan = held.plan
    if control not in plan.arms:
        raise EstimateError(f"there is no arm {control!r}; the arms are {', '.join(plan.arms)}.")
    arms = [control, *(arm for arm in plan.arms if arm != control)]
    places = [list(plan.arms).index(arm) for arm in arms]
    return held.turned(msgspec.structs.replace(plan, arms={arm: plan.arms[arm] for arm in arms}), places)


def _empty(plan: Plan) -> Rich | Lean:
    segments = ((levels, _cells(plan, len(levels))) for levels in (first_levels(plan, each) for each in plan.segments))
    arms = Arms.empty(plan) if plan.keeps == MOMENTS else None
    return replace(_cells(plan), segments=tuple(Segment(*each) for each in segments), arms=arms)


def _cells(plan: Plan, levels: int = 1) -> Rich | Lean:
    """Of no records; of a segment, with an arm for each arm and level. Where the plan has strata, with these."""
    arms, groups = len(plan.arms) * levels, min(plan.groups, MOST_GROUPS) if plan.grouped else 1
    shapes = (HistogramShape(arms, groups, bins.number, plan.weighted) for bins in plan.bins)
    held, strata = _bare(plan, levels, weighted=plan.weighted), None
    if plan.strata is not None:
        strata = _bare(plan, levels * len(plan.strata.probabilities), weighted=plan.weight is not None)
    return replace(held, histograms=tuple(map(Histogram.empty, shapes)), strata=strata)


def _bare(plan: Plan, levels: int, *, weighted: bool) -> Rich | Lean:
    """With nothing beside."""
    predictor = predictor_of(plan)
    if plan.covariates and predictor is None:
        groups = plan.groups if plan.grouped else FOLDS
        return Rich(plan, CompleteCases.empty(plan, groups, levels, weighted=weighted))
    groups, size = plan.groups if plan.grouped else 1, (len(plan.arms) * levels, len(plan.values))
    shape = SumsShape(*size, groups, predictor is not None, weighted, plan.lacking, plan.pairs)
    return Lean(plan, Sums.empty(shape), predictor)


def _restored(state: Any, plan: Plan) -> Grouped:
    saved: GroupedState = decode_part(state, StateBeside if plan.keeps == MOMENTS else GroupedState)
    empty = _empty(plan)
    if saved.released is not None:
        sums = restored_release(saved.released, plan)
        return Lean(plan, sums, empty.predictor, released=True, histograms=empty.histograms, segments=empty.segments)
    if saved.of_none:
        return empty
    held = _restored_cells(saved, _cells(plan))
    if len(saved.segments) != len(plan.segments):
        raise StateError("the state does not fit its plan: it has other segments.")
    segments = []
    for column, (levels, cells) in zip(plan.segments, saved.segments, strict=True):
        if (listed := plan.levels_of(column)) and tuple(listed) != tuple(levels):
            raise StateError("the state does not fit its plan: a segment has other levels.")
        part = _restored_cells(decode_part(cells, GroupedState), _cells(plan, len(levels)))
        segments.append(Segment[Grouped](tuple(levels), part))
    parts = [held, *(segment.cells for segment in segments)]
    arms = Arms.restore(saved.arms, plan) if isinstance(saved, StateBeside) else None
    beside = [*(segment.cells.n for segment in segments), *(() if arms is None else (arms.n,))]
    if any(n != held.n for n in beside) or any(each.n > held.n for part in parts for each in part.histograms):
        raise StateError("the state is damaged: its counts do not fit.")
    return replace(held, segments=tuple(segments), arms=arms)


def _restored_cells(saved: GroupedState, empty: Grouped) -> Grouped:
    """What was held of cells, of which these are the empty ones."""
    if saved.of_none:
        return empty
    if (saved.strata is None) != (empty.strata is None):
        raise StateError("the state does not fit its plan: it has other strata.")
    if len(saved.histograms) != len(empty.histograms):
        raise StateError("the state does not fit its plan: it has other histograms.")
    shapes = [each.shape for each in empty.histograms]
    histograms = tuple(map(Histogram.restore, saved.histograms, shapes))
    held = replace(_restored_bare(saved, empty), histograms=histograms)
    if empty.strata is None:
        return held
    strata = _restored_cells(decode_part(saved.strata, GroupedState), empty.strata)
    if strata.n != held.n:
        raise StateError("the state is damaged: its counts do not fit.")
    return replace(held, strata=strata)


def _restored_bare(saved: GroupedState, empty: Grouped) -> Grouped:
    plan = empty.plan
    if None not in (saved.moments, saved.sums):
        raise StateError("the state is damaged: it has the tallies of a rich trial beside those of a lean one.")
    if saved.sums is None:
        if (cases := empty.cases) is None:
            raise StateError("the state does not fit its plan: it has other tallies.")
        return Rich(plan, cases.restored(saved.moments))
    predictor = empty.predictor
    if saved.center is not None and saved.slopes is not None and empty.unfixed:
        columns = len(plan.predictors) - 1
        predictor = Predictor(saved.center.read(columns), saved.slopes.read(len(plan.values), columns))
    adjusted = predictor is not None and not saved.why
    if plan.covariates and not adjusted and not saved.why:
        raise StateError("the state is damaged: its outcomes are not adjusted, and it does not say why.")
    sums = Sums.restore(saved.sums, empty.shape._replace(adjusted=adjusted))
    return Lean(plan, sums, predictor if adjusted else None, saved.why)
