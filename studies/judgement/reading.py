"""A trial as a person reads it: the verdict of each outcome, and the row that it comes from."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

import foldaway as fa
from foldaway.effects import Effect, Verdict
from foldaway.effects.door import OWN, TOLD
from studies.judgement.design import Found, Notes

Columns: TypeAlias = dict[str, NDArray[Any]]
Simulate: TypeAlias = Callable[[np.random.Generator], Columns]

CONTROL, TREATED = "control", "treatment"
_OPEN = ("not decided yet", "no verdict")


class Truth(NamedTuple):
    """The effect of an outcome, and as a share of the control's level; None where that level is about zero."""

    effect: float = 0.0
    relative: float | None = 0.0


NO_EFFECT = Truth()
AROUND_ZERO = Truth(relative=None)
"""No effect on an outcome whose level is about zero."""


def plan(treated: float, outcomes: Any, **settings: Any) -> fa.Plan:
    """A plan of two arms, of which the treatment has this share; comparisons are not corrected for each other."""
    arms = {CONTROL: 1 - treated, TREATED: treated}
    return fa.Plan(name="judgement", arm="arm", arms=arms, outcomes=outcomes, **{"correction": "none", **settings})


def named(treated: NDArray[Any]) -> NDArray[Any]:
    """The arm's name of every record."""
    return np.where(treated, TREATED, CONTROL)


def folded(of: fa.Plan, columns: Columns, rng: np.random.Generator) -> fa.Trial:
    """A trial of these records under a key of its own."""
    trial = fa.Trial(of, key=rng.bytes(16))
    trial.fold(columns)
    return trial


def leads(effects: fa.Effects) -> list[tuple[Verdict, Effect]]:
    """Every verdict, with the row that it comes from."""
    rows = {(row.outcome, row.arm, row.estimator, row.se_kind): row for row in effects}
    return [(said, rows[said.outcome, said.arm, said.estimator, said.se_kind]) for said in effects.verdicts()]


def decided(word: str) -> bool:
    """Whether a verdict says anything."""
    return word not in _OPEN


def holds(lower: float | None, upper: float | None, truth: float | None) -> bool | None:
    """Whether an interval, which may be open at one end, covers; None if it is withheld."""
    if truth is None or (lower is None and upper is None):
        return None
    return (lower is None or lower <= truth) and (upper is None or truth <= upper)


def notes_of(said: Verdict, row: Effect, truth: Truth) -> Notes:
    """What is noted of a verdict and its row."""
    covers = holds(row.ci_lower, row.ci_upper, truth.effect)
    notes: dict[str, float | bool | None] = {
        "covers": covers,
        "withheld": row.ci_lower is None,
        "is noted": row.note is not None,
    }
    if truth.relative is not None:
        notes["relative covers"] = holds(row.relative_ci_lower, row.relative_ci_upper, truth.relative)
        notes["relative withheld"] = row.relative_ci_lower is None
    if truth.effect == 0:
        notes = {"wrong": decided(said.verdict), **notes}
    else:
        notes["covers or is noted"] = None if covers is None else covers or row.note is not None
    return notes


def one_look(
    of: fa.Plan,
    simulate: Simulate,
    truth: Mapping[str, Truth] | Truth = NO_EFFECT,
    *,
    saved: bool = False,
    told: bool = False,
) -> Callable[[np.random.Generator], Found]:
    """A trial that is looked at once.

    Args:
        of: The plan.
        simulate: Its records.
        truth: What is true of every outcome, or of each.
        saved: Whether the trial is saved before it is read.
        told: Whether others read it, and so rounded; noted is then also whether their verdict is the owner's.
    """

    def trial(rng: np.random.Generator) -> Found:
        made = folded(of, simulate(rng), rng)
        if saved:
            made.dumps()
        effects = made.read(TOLD if told else OWN)
        found = {}
        for said, row in leads(effects):
            true = truth if isinstance(truth, Truth) else truth[row.outcome]
            found[row.outcome if len(of.outcomes) > 1 else ""] = notes_of(said, row, true)
        if told:
            own = [said.verdict for said in made.effects().verdicts()]
            for notes, said, mine in zip(found.values(), effects.verdicts(), own, strict=True):
                unlike = None if said.estimate is None else said.verdict != mine  # they may not be told
                notes["unlike the owner's"] = unlike  # type: ignore[index]  # made here
        return found

    return trial


def many_looks(of: fa.Plan, simulate: Simulate, looks: int = 50) -> Callable[[np.random.Generator], Found]:
    """A trial without an effect that is looked at so many times: whether an any-time verdict ever finds one."""

    def trial(rng: np.random.Generator) -> Found:
        columns = simulate(rng)
        n = len(columns["arm"])
        ends = np.linspace(0, n, looks + 1).astype(int)
        made = fa.Trial(of, key=rng.bytes(16))
        told = 0
        for start, stop in itertools.pairwise(ends):
            made.fold({name: column[start:stop] for name, column in columns.items()})
            ((said, row),) = leads(made.effects())
            told += row.anytime_ci_lower is not None
            if decided(said.anytime):
                return {"": {"ever wrong": True, "looks with an any-time interval": None}}
        return {"": {"ever wrong": False, "looks with an any-time interval": told / looks}}

    return trial
