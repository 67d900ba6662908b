"""What a trial of a plan holds: before its first record, and from a state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from foldaway.errors import EstimateError, StateError
from foldaway.keeping.state import decode_part
from foldaway.plan import Plan
from foldaway.plan.outcomes import Binning
from foldaway.plan.vocabulary import MOMENTS
from foldaway.tallies.baseline import BaselineTallies
from foldaway.tallies.complete_cases import CompleteCases
from foldaway.tallies.grouped import Grouped, GroupedState, StateBeside
from foldaway.tallies.held import Held
from foldaway.tallies.histogram import MOST_GROUPS, Histogram, HistogramShape
from foldaway.tallies.lean import Lean
from foldaway.tallies.moments import Arms, ArmTally
from foldaway.tallies.predictor import Predictor, predictor_of
from foldaway.tallies.release import restored_release
from foldaway.tallies.rich import FOLDS, Rich
from foldaway.tallies.segment import SegmentTallies, first_levels
from foldaway.tallies.sums import Sums, SumsShape


def empty_holding(plan: Plan) -> Held:
    """What a trial of this plan holds before its first record."""
    return _empty(plan) if plan.keeps_sums else Arms.empty(plan)


def emptied(held: Held) -> Held:
    """What a trial that holds this would hold of no records; coefficients that are fixed stay so.

    Example:
        >>> from foldaway.plan import Plan
        >>> emptied(empty_holding(Plan(name="demo", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"]))).n
        0
    """
    empty = empty_holding(held.plan)
    if isinstance(held, Lean) and empty.unfixed:
        return empty.fixed(held.predictor, why=held.why)
    return empty


def lean_cells(plan: Plan, column: str | None, levels: Sequence[str], why: str) -> Lean:
    """Sums of no records, of a segment or of all records, and why outcomes are not adjusted if they are not."""
    return _cells(plan, column, len(levels)).fixed(None, why=why)


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
    written = plan.arms.written()
    return held.turned(msgspec.structs.replace(plan, arms={arm: written[arm] for arm in arms}), places)


def _empty(plan: Plan) -> Rich | Lean:
    levels = {column: first_levels(plan, column) for column in plan.segments}
    segments = tuple(SegmentTallies[Grouped](each, _cells(plan, column, len(each))) for column, each in levels.items())
    arms = Arms.empty(plan) if plan.keeps == MOMENTS else None
    baseline = BaselineTallies.empty(plan) if plan.baseline else None
    return replace(_cells(plan), segments=segments, arms=arms, baseline=baseline)


def _cells(plan: Plan, column: str | None = None, levels: int = 1) -> Rich | Lean:
    """Of no records; of a segment, with an arm for each arm and level. Where the plan has strata, with these.

    At sites a segment has as many groups as all records, since sites join groups, and no histograms, which they do not
    send by level.
    """
    at_sites = column is not None and plan.federated is not None
    parts = 1 if column is None or at_sites else plan.parts_of(column)
    held, strata = _bare(plan, levels, parts, weighted=plan.weighted), None
    if plan.strata is not None:
        number, own = len(plan.strata.probabilities), plan.weight is not None
        strata = _bare(plan, levels * number, parts * number, weighted=own)
        if column is None:
            exits = [plan.bins[place] for place in plan.exits_by_stratum]
            strata = replace(strata, histograms=_empty_histograms(plan, exits, number, number, weighted=own))
    bins = () if at_sites else plan.bins
    histograms = _empty_histograms(plan, bins, levels, parts, weighted=plan.weighted)
    return replace(held, histograms=histograms, strata=strata)


def _empty_histograms(
    plan: Plan, binnings: Sequence[Binning], levels: int, parts: float, *, weighted: bool
) -> tuple[Histogram, ...]:
    """With an arm for each arm and level."""
    arms = len(plan.arms) * levels
    shapes = (HistogramShape(arms, groups_of_histogram(plan, bins, parts), bins.number, weighted) for bins in binnings)
    return tuple(map(Histogram.empty, shapes))


def _bare(plan: Plan, levels: int, parts: float, *, weighted: bool) -> Rich | Lean:
    """With nothing beside."""
    predictor, groups = predictor_of(plan), plan.groups_of_parts(parts) if plan.grouped else 1
    if plan.covariates and predictor is None:
        cases = CompleteCases.empty(plan, plan.groups if plan.grouped else FOLDS, levels, weighted=weighted)
        return Rich(plan, groups, cases)
    size = len(plan.arms) * levels, len(plan.values)
    shape = SumsShape(*size, groups, predictor is not None, weighted, plan.lacking, plan.pairs)
    return Lean(plan, Sums.empty(shape), predictor)


def groups_of_histogram(plan: Plan, bins: Binning, parts: float = 1) -> int:
    """Into how many groups a histogram's records are dealt: as its bins are cells, fewer than the plan's sums."""
    if not plan.grouped:
        return 1
    return min(plan.groups_of_parts(parts * bins.number), MOST_GROUPS)


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
        part = _restored_cells(decode_part(cells, GroupedState), _cells(plan, column, len(levels)))
        segments.append(SegmentTallies[Grouped](tuple(levels), part))
    parts = [held, *(segment.cells for segment in segments)]
    arms = Arms.restore(saved.arms, plan) if isinstance(saved, StateBeside) else None
    baseline = None
    if empty.baseline is not None:
        baseline = BaselineTallies.restore(saved.baseline, saved.levels, plan)
    elif saved.baseline is not msgspec.UNSET:
        raise StateError("the state does not fit its plan: it has a baseline.")
    beside = [each.n for each in (arms, baseline) if each is not None]
    of_levels = [segment.cells.n for segment in segments]
    # Sites do not send levels that few of their units have.
    beside += [max(n, held.n) for n in of_levels] if plan.federated is not None else of_levels
    if any(n != held.n for n in beside) or any(each.n > held.n for part in parts for each in part.histograms):
        raise StateError("the state is damaged: its counts do not fit.")
    return replace(held, segments=tuple(segments), arms=arms, baseline=baseline)


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
        return replace(empty, cases=cases.restored(saved.moments))  # type: ignore[call-arg]
    predictor = empty.predictor
    if saved.center is not None and saved.slopes is not None and empty.unfixed:
        columns = len(plan.predictors) - 1
        predictor = Predictor(saved.center.read(columns), saved.slopes.read(len(plan.values), columns))
    adjusted = predictor is not None and not saved.why
    if plan.covariates and not adjusted and not saved.why:
        raise StateError("the state is damaged: its outcomes are not adjusted, and it does not say why.")
    sums = Sums.restore(saved.sums, empty.shape._replace(adjusted=adjusted))
    return Lean(plan, sums, predictor if adjusted else None, saved.why)
