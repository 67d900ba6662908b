"""A trial: a plan and its tallies."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Self

import msgspec

from foldaway.analysis import effects_of
from foldaway.block import Shape
from foldaway.effects import Effects
from foldaway.errors import PlanError, SampleRatioWarning, StateError
from foldaway.plan import Plan
from foldaway.records import Fault, Faults, check
from foldaway.state import pack, unpack
from foldaway.tallies import kinds_of
from foldaway.tallies.arm import ArmTally
from foldaway.tallies.parallel import fold_batch


class TrialState(msgspec.Struct):
    """What a trial keeps, and the plan it was kept under, in canonical form."""

    plan: str
    arms: list[Any]
    dropped: dict[str, int]
    faults: list[Fault]


class Trial:
    """A plan and its tallies: fold records in, read effects out; no record is kept.

    Example:
        >>> plan = Plan(name="demo", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
        >>> trial = Trial(plan)
        >>> trial.fold({"group": ["a", "b", "a", "b"], "y": [1.0, 2.0, 2.0, 4.0]})
        >>> trial.fold([{"group": "b", "y": 3.0}])
        >>> trial
        Trial: demo | n=5 | a=2, b=3
        >>> effect = trial.effects().filter(estimator="difference", se_kind="HC2")[0]
        >>> effect.estimate, round(effect.std_error, 4)
        (1.5, 0.7638)
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        shape = Shape(len(plan.regressors), len(plan.outcomes))
        self._arms = [ArmTally.empty(shape, kinds_of(plan)) for _ in plan.arms]
        self._faults = Faults()

    def fold(self, data: Any, *, text: bool = False, unreadable: int = 0) -> None:
        """Take a batch of records in; nothing of it is kept.

        Args:
            data: A pandas, polars, pyarrow or DuckDB table, a dict of columns, or a list of dicts.
            text: Whether numbers may come as text, as in CSV.
            unreadable: Lines that whoever read the data could not read as records; faults like any other.

        Raises:
            RecordError: The batch is refused whole and the trial is as it was.
        """
        batch, faults = check(data, self.plan, text=text, ragged=unreadable)
        folded = fold_batch(self._arms, batch) if len(batch) else self._arms
        # All of it or nothing, even if the thread is interrupted: the tallies are values.
        self._arms, self._faults = folded, self._faults + faults

    def merge(self, other: Trial) -> Self:
        """The trial of both sets of records; the two are left as they were."""
        if self.plan != other.plan:
            raise StateError("only trials of the same plan can be merged; these plans differ.")
        merged = type(self)(self.plan)
        merged._arms = [a + b for a, b in zip(self._arms, other._arms, strict=True)]
        merged._faults = self._faults + other._faults
        return merged

    def __add__(self, other: Trial) -> Self:
        if not isinstance(other, Trial):
            return NotImplemented
        return self.merge(other)

    @property
    def n(self) -> int:
        """Records folded."""
        return sum(arm.n for arm in self._arms)

    @property
    def counts(self) -> dict[str, int]:
        """Records folded, by arm."""
        return {name: arm.n for name, arm in zip(self.plan.arms, self._arms, strict=True)}

    @property
    def dropped(self) -> Faults:
        """Faulty records left out, where the plan says to drop them."""
        return self._faults

    def effects(self, *, adjust: str | None = None, population: bool = False) -> Effects:
        """What the trial has found so far.

        Args:
            adjust: ``"holm"`` or ``"benjamini-hochberg"``, over arms and outcomes.
            population: Let the errors of the interacted estimator allow for the covariates' mean being that
                of a sample, so that the effect is the population's.
        """
        effects = effects_of(self.plan, self._arms, self._faults, population=population)
        if not effects.sample_ratio.ok:
            warnings.warn(effects.notes[0], SampleRatioWarning, stacklevel=2)
        return effects if adjust is None else effects.adjusted(adjust)

    def dumps(self) -> bytes:
        """The state as bytes: the plan and its tallies, nothing else."""
        state = TrialState(
            self.plan.canonical().decode(),
            [arm.state() for arm in self._arms],
            dict(sorted(self._faults.records.items())),
            list(self._faults),
        )
        return pack(state)

    @classmethod
    def loads(cls, data: bytes, plan: Plan | None = None) -> Self:
        """The trial from its state, under the plan that made it: the one given must be that one.

        Raises:
            StateError: The state is damaged, truncated, or of another plan.
        """
        state = unpack(data, TrialState)
        made_under = _plan_of(state)
        if plan is not None and plan.fingerprint != made_under.fingerprint:
            raise StateError(
                f"the state was made under another plan ({made_under.name}, fingerprint "
                f"{made_under.fingerprint[:12]}…); load it with that one."
            )
        trial = cls(made_under)
        if len(state.arms) != len(trial._arms):
            raise StateError("the state does not fit its plan: it has another number of arms.")
        trial._arms = [
            ArmTally.restore(kept, empty.shape, empty.kinds)
            for kept, empty in zip(state.arms, trial._arms, strict=True)
        ]
        trial._faults = Faults(state.dropped.items(), state.faults)
        return trial

    def save(self, path: str | Path) -> None:
        """Write the state to a file, in one step: a crash leaves the old file or the new one."""
        path = Path(path)
        draft = path.with_name(path.name + ".draft")
        draft.write_bytes(self.dumps())
        draft.replace(path)

    @classmethod
    def load(cls, path: str | Path, plan: Plan | None = None) -> Self:
        """The trial from a file that ``save`` wrote."""
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise StateError(f"cannot read the state {path}: {error.strerror}.") from None
        return cls.loads(data, plan)

    def __repr__(self) -> str:
        counts = ", ".join(f"{arm}={n:_}" for arm, n in self.counts.items())
        return f"Trial: {self.plan.name} | n={self.n:_} | {counts}"


def _plan_of(state: TrialState) -> Plan:
    try:
        return Plan.loads(state.plan)
    except PlanError:
        pass
    raise StateError("the state is damaged: it does not hold a plan.")
