"""A trial: a plan and its tallies."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from foldaway.effects import Effects
from foldaway.effects.door import OWN, Door
from foldaway.effects.looks import look_at
from foldaway.effects.looks_taken import Look
from foldaway.effects.read_flow import with_flow
from foldaway.effects.reading import read_effects
from foldaway.errors import (
    EndedError,
    FixedWarning,
    KeyWarning,
    LossWarning,
    PlanError,
    RecordError,
    SampleRatioWarning,
    SourceError,
    StateError,
    TooEarly,
    joined,
    many,
)
from foldaway.inference.adjusting import Start
from foldaway.inference.fixing import fixed
from foldaway.keeping.cohort import Newcomers
from foldaway.keeping.listed_places import forget_places
from foldaway.keeping.saved import Final, Positions, Saved, load, naming, others_under
from foldaway.keeping.secret import Secret
from foldaway.keeping.state import pack
from foldaway.keeping.user_keys import FileKey
from foldaway.numerics.block import Floats
from foldaway.numerics.threads import cores, on_threads, one_core
from foldaway.plan import Flow, Plan
from foldaway.plan.arms import secret_arm
from foldaway.records import Faults, check
from foldaway.records.faults import FaultyBatch
from foldaway.records.values import WRONG_TYPE
from foldaway.table import ABSENT, html_table
from foldaway.tallies import Held, Lean, emptied, empty_holding, grouped_of, restored_holding
from foldaway.tallies.answer import read_answer
from foldaway.tallies.levels import marked
from foldaway.tallies.moments import Arms
from foldaway.trial.chronicle import Chronicle
from foldaway.trial.ending import finish_ending
from foldaway.trial.key import TrialKey
from foldaway.trial.state import TrialState, differing, read_state
from foldaway.trial.units import Seen, large_slices, with_batch

if TYPE_CHECKING:
    from foldaway.auditing.finding import Audit
    from foldaway.report.page.document import Report


class Trial:
    """A plan and its tallies: fold records in, read effects out; no record is kept.

    Args:
        plan: The plan.
        key: The 128-bit secret behind units' arms, their groups and the bootstrap's weights, under which saved files
            are encrypted, too; this machine's user's own for the design if left out. Machines that draw arms, or fold
            records, of the same units must share it.

    Attributes:
        plan: The plan.
        tallies: What the trial holds: a value, of which folding makes a new one.
        dropped: Faulty records left out, where the plan says to drop them.
        labels: Those of the answers of databases that are folded, of which each counts once.

    Example:
        >>> plan = Plan(name="demo", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
        >>> trial = Trial(plan)
        >>> trial.fold({"group": ["a", "b", "a", "b"], "y": [1.0, 2.0, 2.0, 4.0]})
        >>> trial.fold([{"group": "b", "y": 3.0}])
        >>> trial
        Trial: demo | n=5 | a=2, b=3
        >>> effect = trial.effects().filter(estimator="difference", se_kind="welch")[0]
        >>> effect.estimate, effect.reliable
        (1.5, True)
    """

    def __init__(self, plan: Plan, *, key: bytes | None = None) -> None:
        if not isinstance(plan, Plan):
            raise TypeError("a trial is made from a plan: fa.Trial(fa.Plan.load(path)).")
        self.plan = plan
        self.tallies: Held = empty_holding(plan)
        self.dropped = Faults()
        self.labels: frozenset[str] = frozenset()
        self.newcomers = Newcomers()  # since the tallies were last written: whoever writes them begins anew
        self.seen = Seen.nobody(plan)
        self.secret = TrialKey(plan, key)
        self.chronicle = Chronicle(plan)

    def assign(self, unit: str | int | bytes, stratum: str | None = None) -> str:
        """Draw the arm of a unit under the trial's secret key: the same whenever the same key is asked.

        Without the key, nobody can foresee the arm or work it out later: not from the plan, from a certificate or from
        other units' arms. Machines that draw arms of one trial must share the key. Once the trial has ended, the key is
        gone.

        Args:
            unit: Its identifier; 17, "17" and b"17" are the same unit.
            stratum: Of a plan with strata, the one that the unit is in.

        Raises:
            EndedError: The trial has ended, or was loaded without its key.
            PlanError: The plan's devices draw their arms themselves; or its strata do not contain this one.

        Example:
            >>> plan = Plan(name="demo", arm="g", arms={"a": 0.2, "b": 0.8}, outcomes=["y"])
            >>> trial, other = (Trial(plan, key=bytes([key]) * 16) for key in (1, 2))
            >>> arms = [trial.assign(i) for i in range(1000)]
            >>> arms == [trial.assign(str(i)) for i in range(1000)], arms == [other.assign(i) for i in range(1000)]
            (True, False)
        """
        if self.plan.federated is not None and self.plan.unit is None:
            raise PlanError("the devices of this plan draw their own arms: see foldaway.federated.Device.")
        return secret_arm(self.plan.shares_of(stratum), self.secret.for_arms(), unit)

    def fold(self, data: Any, *, text: bool = False, unreadable: int = 0) -> None:
        """Take a batch of records in; nothing of it is kept.

        Args:
            data: A pandas, polars, pyarrow or DuckDB table, a dict of columns, or a list of dicts.
            text: Whether numbers may come as text, as in CSV.
            unreadable: Lines that whoever read the data could not read as records; faults like any other.

        Raises:
            RecordError: The batch is refused whole and the trial is as it was.
            EndedError: The trial has ended, or was loaded without its key.
        """
        if self.plan.federated is not None and self.plan.unit is None:
            raise PlanError("the records of this plan stay on its devices: use foldaway.federated.Device.")
        if slices := large_slices(data, self.plan):
            with suppress(FaultyBatch):  # of which all is told below
                return self._fold_slices(slices, text=text, unreadable=unreadable)
        batch, faults = check(data, self.plan, text=text, ragged=unreadable, key=self.secret.for_records())
        if len(batch) and (self.plan.unlisted or any(batch.characteristics)):
            batch = marked(batch, self.plan, self.secret.for_levels())
        folded = self.tallies.fold(batch) if len(batch) else self.tallies
        mark = self.secret.mark_in_use() if len(batch) else self.secret.mark
        newcomers, seen = with_batch(self.newcomers, batch, self.plan), self.seen.with_batch(batch)
        # All of it or nothing, even if the thread is interrupted: the tallies are values.
        self.tallies, self.dropped, self.secret.mark = folded, self.dropped + faults, mark
        self.newcomers, self.seen = newcomers, seen

    def _fold_slices(self, slices: Sequence[pa.Table], *, text: bool, unreadable: int) -> None:
        """Take a large table in slice by slice, on all cores: nothing of it is copied as a whole."""
        tallies, dropped, newcomers = self.tallies, self.dropped, self.newcomers

        def fold(start: int, stop: int) -> Trial:
            part = self.copy()
            part.tallies, part.dropped, part.newcomers = emptied(tallies), Faults(), Newcomers()
            with one_core():
                for place in range(start, stop):
                    part.fold(slices[place], text=text, unreadable=0 if place else unreadable)
            return part

        workers = min(cores(), len(slices))
        for part in on_threads(fold, [len(slices) * worker // workers for worker in range(workers + 1)]):
            tallies, dropped, mark = tallies + part.tallies, dropped + part.dropped, part.secret.mark
            newcomers = (newcomers + part.newcomers).within(self.plan.privacy)
        self.tallies, self.dropped, self.newcomers, self.secret.mark = tallies, dropped, newcomers, mark

    def fold_sums(self, answer: Any, *, label: str) -> None:
        """Take in the answer of a statement of `Plan.sql`: sums of records that stayed in their database.

        Args:
            answer: A pandas, polars, pyarrow or DuckDB table, a dict of columns, or a list of dicts.
            label: What the records are called, such as their day: what has a label is folded once.

        Raises:
            SourceError: The label was folded before, or the answer is damaged, or is of another plan or group key.
            RecordError: Some records are faulty, and the plan does not drop these.
        """
        self.require_new(label)
        plan, secret = self.plan, self.secret
        group_key = secret.for_warehouse() if plan.grouped else ""
        found = read_answer(answer, plan, group_key, secret.for_levels() if plan.unlisted else b"")
        if found.faults and not plan.drops:
            _require_cast(found.faults, plan)
            raise FaultyBatch(found.faults, found.cells.n + found.faults.total)
        if not (found.cells.n or found.faults):
            raise SourceError(f"the query selected no record; nothing was folded, and {label!r} may be folded later.")
        folded = grouped_of(self.tallies) + found.cells
        mark = secret.mark_in_use() if found.cells.n else secret.mark
        # Of units that may come back, no more are known to be new than the largest answer has.
        units = found.cells.n if plan.one_each else max(found.units - self.newcomers.distinct, 0)
        newcomers = (self.newcomers + Newcomers(found.cells.n, units)).within(plan.privacy)
        self.tallies, self.dropped, secret.mark = folded, self.dropped + found.faults, mark
        self.newcomers, self.labels = newcomers, self.labels | {label}

    def require_new(self, label: str) -> None:
        """Refuse a label that was folded before.

        Raises:
            SourceError: It was, or is none.
        """
        if not isinstance(label, str) or not label.strip():
            raise SourceError("give the records a label, such as their day, so that nothing is folded twice.")
        if label in self.labels:
            raise SourceError(
                f"{label!r} is in this trial already; nothing was folded. Records that it did not have need a label of "
                "their own; to fold it anew, begin with a trial without it."
            )

    def fold_clusters(self, codes: NDArray[np.intp], counts: NDArray[np.int64], triangles: Floats) -> None:
        """Take whole clusters in, of which only the second moments have come: see `Arms.fold_clusters`."""
        assert self.tallies.arms is not None
        self.tallies = self.tallies.arms.fold_clusters(codes, counts, triangles)

    def fold_totals(
        self,
        arm: NDArray[np.intp],
        group: NDArray[np.intp],
        counts: NDArray[np.int64],
        totals: Floats,
        present: Floats | None = None,
    ) -> None:
        """Take in sums over the records of each of some units: see `Sums.fold_totals`."""
        self.tallies = self._lean().fold_totals(arm, group, counts, totals, present)

    def publish(self, records: Floats, totals: Floats) -> None:
        """Take in what two servers have published with the noise of the plan's `release`: see `Lean.publish`."""
        self.tallies = self._lean().publish(records, totals)

    def without(self, other: Trial) -> Self:
        """The trial without devices that are in it; the two are left as they were."""
        found, mine, gone = self.copy(), self.tallies, other.tallies
        if isinstance(mine, Arms) and isinstance(gone, Arms):
            found.tallies = mine.without(gone)
        else:
            found.tallies = self._lean().without(other._lean())
        return found

    def _lean(self) -> Lean:
        assert isinstance(self.tallies, Lean)  # as plans with a release are, and those of devices that send sums
        return self.tallies

    @property
    def key(self) -> bytes:
        """The trial's key, to share with another machine or to keep apart from the state."""
        return self.secret.reveal()

    @property
    def ended(self) -> bool:
        """Whether the trial has ended, and takes no further records."""
        return self.secret.destroyed

    def end(self, path: str | Path | None = None, *, without_effects: bool = False) -> Effects:
        """End the trial: its effects in full, or with the noise of the plan's `release`; then its key is destroyed.

        Nobody can then tie an identifier to a group or an arm, and nobody can open a state that was saved before. Asked
        again, it gives the same effects: noise that is drawn twice could be averaged away.

        Args:
            path: The file that the trial was saved to, if it was. Before the key goes, the effects replace the state
                there, rounded for others; so a crash leaves a trial that can still end, or its effects.
            without_effects: Whether to end it even if effects would be withheld from others.

        Returns:
            The effects, exactly: for yourself. Those of a `release` have noise, and are for everybody.

        Raises:
            TooEarly: Effects would be withheld; nothing was changed.
            EstimateError: The plan has a `release`, and OpenDP, which draws the noise, is not installed.

        Example:
            >>> import tempfile
            >>> plan = Plan(name="demo", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
            >>> trial = Trial(plan, key=bytes(16))
            >>> trial.fold({"group": ["a", "b"] * 60, "y": [float(i % 7) for i in range(120)]})
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     trial.save(Path(folder, "state"))
            ...     exact = trial.end(Path(folder, "state"))
            ...     exact.final, exact.rounded, Effects.load(Path(folder, "state")).rounded
            (True, False, True)
        """
        others = [] if self.ended else self.other_states(path)
        self.conclude(without_effects=without_effects)
        if path is not None:
            self.save(path)
        if others and self.secret.users_mark:  # this user's own key, which is destroyed
            warnings.warn(opened_too(others), KeyWarning, stacklevel=2)
        self.destroy_key()
        if path is not None:
            self.chronicle.ledger = finish_ending(Path(path))
        return replace(self.read(), final=True)

    def other_states(self, path: str | Path | None = None) -> list[Path]:
        """The other saved states that this trial's key opens, and nobody once it has ended, as far as they are known.

        Known are those that this machine's user has saved, and states in the same folder.

        Args:
            path: The trial's own file.
        """
        key = self.secret.in_use_for_files()
        return [] if key is None else others_under(key, None if path is None else Path(path))

    def require_effects(self) -> None:
        """Refuse an end that would leave no effects for others, for whatever reason.

        Of a plan with a `release` none is refused: that would tell how few have come. What the noise drowns has no
        numbers.

        Raises:
            TooEarly: It would.
        """
        if self.plan.release is None and (why := self.chronicle.withheld(self.tallies, self.dropped)) is not None:
            raise TooEarly(
                f"the trial was not ended, because effects would be withheld: {why} Wait for more, or end it without "
                "effects, which cannot be undone: without_effects=True, or --without-effects on the command line."
            )

    def conclude(self, *, without_effects: bool = False, found: Audit | None = None) -> None:
        """The end but for its last step: the user's own key stays until what is left is safe, for `destroy_key`.

        Args:
            without_effects: As for `end`.
            found: An audit of these tallies, if there was one already: it can take long.

        Raises:
            TooEarly: Effects would be withheld; nothing was changed.
        """
        if not self.ended and not self.chronicle.ledger.ended:
            if not without_effects:
                self.require_effects()
            if self.plan.release is not None:
                # What was left out and clipped was counted exactly, and goes too.
                self.tallies, self.dropped = self._lean().release(), Faults()
            self.chronicle.end(self.tallies, self.dropped, self.secret, found)
        self.secret.destroy(used=self.released or bool(self.n), everywhere=False)

    def destroy_key(self) -> None:
        """Destroy the user's own key of a trial that was concluded, so that no other state of it can be read."""
        self.secret.destroy(used=self.released or bool(self.n), everywhere=True)
        self.chronicle.key_destroyed(self.secret.users_mark)
        if self.secret.users_mark:
            forget_places(self.secret.users_mark.hex())

    def merge(self, other: Trial) -> Self:
        """The trial of both sets of records; the two are left as they were."""
        if self is other and self.n:
            raise StateError("merging a trial with itself would count its records twice.")
        if self.plan.fingerprint != other.plan.fingerprint:
            they_differ = f"these plans differ in {differing(self.plan, other.plan)}"
            raise StateError(f"only trials of the same plan can be merged; {they_differ}.")
        if twice := sorted(self.labels & other.labels):
            raise StateError(f"both trials have the records of {', '.join(map(repr, twice))}, which would count twice.")
        merged = copy.copy(self)
        merged.secret = self.secret.merge(other.secret, used=bool(self.n), other_used=bool(other.n))
        merged.tallies = self.tallies + other.tallies
        merged.dropped = self.dropped + other.dropped
        merged.newcomers = (self.newcomers + other.newcomers).within(self.plan.privacy)
        merged.seen = self.seen.merge(other.seen)
        merged.labels = self.labels | other.labels
        merged.chronicle = self.chronicle.merge(other.chronicle)
        return merged

    def __add__(self, other: Trial) -> Self:
        if not isinstance(other, Trial):
            return NotImplemented
        return self.merge(other)

    def copy(self) -> Self:
        """A trial of its own with the same tallies and the same key."""
        twin = copy.copy(self)
        twin.secret, twin.chronicle = self.secret.copy(), copy.copy(self.chronicle)
        return twin

    @property
    def n(self) -> int:
        """Records folded."""
        return self.tallies.n

    @property
    def counts(self) -> dict[str, int]:
        """Records folded, by arm."""
        return dict(zip(self.plan.arms, self.tallies.counts, strict=True))

    def effects(self, *, population: bool = True, control: str | None = None) -> Effects:
        """What the trial has found so far, exactly: for yourself. Others get `told`.

        Args:
            control: The arm that all others are compared with; the plan's first if left out.
            population: Whether the errors of the interacted estimator allow for the covariates' mean being that of a
                sample, so that the effect is the population's; without, it is the effect on these very records.
        """
        effects = self.read(population=population, control=control)
        if effects.alarm is not None:
            broken = effects.sample_ratio.state in ("look", "fails")
            warnings.warn(effects.alarm, SampleRatioWarning if broken else LossWarning, stacklevel=2)
        return effects

    def told(self) -> Effects:
        """Effects for others: rounded, so that no person's value can be worked out from several answers.

        New ones come only after the trial has grown enough; until then the same again. Save the trial after asking: the
        answer is saved with it.

        Raises:
            TooEarly: Too few units stand behind them.
        """
        return self.chronicle.tell(self.tallies, self.dropped, self.secret)

    def look(self, *, last: bool = False) -> Look:
        """Take the planned look that is due, and remember it: it is saved with the trial.

        A look spends some of the error rate. Without enough new information, the last look is given again, and nothing
        more is spent.

        Args:
            last: Whether the trial ends here, although less information has come than was planned: what is left of the
                error rate is spent.

        Raises:
            EstimateError: The plan has no `looks`; or its effects cannot be trusted.
            TooEarly: The first look is not due yet, or there is no effect.

        Example:
            >>> from foldaway.plan import Mean
            >>> looks = {"information": {"units": 600}, "at": [0.5, 1.0]}
            >>> outcomes = [Mean("y", better="higher")]
            >>> trial = Trial(Plan(name="demo", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=outcomes, looks=looks))
            >>> trial.fold({"g": ["a", "b"] * 150, "y": [i % 7 + 3.0 * (i % 2) for i in range(300)]})
            >>> look = trial.look()
            >>> look.fraction, round(look.spent, 4), look.arms[0].found
            (0.5, 0.0031, 'stop for benefit')
        """
        found = look_at(self.read(), self.looks, last=last)
        if found is not None:
            self.chronicle.looks = (*self.looks, found)
        return self.looks[-1]

    @property
    def looks(self) -> tuple[Look, ...]:
        """The planned looks that were taken."""
        return self.chronicle.looks

    def read(self, door: Door = OWN, *, population: bool = True, control: str | None = None) -> Effects:
        """The effects through one of the two doors, without the gate of `told` and the warnings of `effects`."""
        return read_effects(
            self.plan, self.tallies, self.dropped, door, population=population, control=control, looks=self.looks
        )

    @property
    def released(self) -> bool:
        """Whether the effects were told with noise, and nothing exact is left."""
        return self.tallies.released

    def report(
        self, *, positions: Positions | None = None, told: Effects | None = None, flow: Flow | None = None
    ) -> Report:
        """A page for people who are no statisticians: what was asked, found and kept, and whether to trust it.

        Args:
            positions: What a run over files or streams saved with the state, which is then in the list of what exists.
            told: Effects for others, from `told`; exact ones if left out.
            flow: Who was assessed and excluded before there were records, if the plan does not say it.

        Example:
            >>> plan = Plan(name="demo", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
            >>> "No record was kept." in Trial(plan).report().html
            True
        """
        from foldaway.report.page.page import trial_page

        saved = Saved(self.dumps(), positions, ledger=self.chronicle.ledger)
        effects = self.read() if told is None else told
        return trial_page(effects if flow is None else with_flow(effects, flow), self.plan, self.tallies, saved)

    @property
    def unfixed(self) -> bool:
        """Whether coefficients are still to be fixed: see `fix`."""
        return self.tallies.unfixed

    def fix(self, start: Start | None = None) -> None:
        """Fix how the covariates predict each outcome, from the records so far, and keep nothing but sums from now on.

        Later records are adjusted with the same coefficients. A second call changes nothing, and neither does the first
        if the plan has coefficients or no covariates.

        Args:
            start: Coefficients that more records than are here have given.
        """
        if self.unfixed:
            self.tallies = fixed(self.tallies, start)

    def dumps(self) -> bytes:
        """The state as bytes: the plan and its tallies, with coefficients fixed; the key is not in it."""
        twin = self.copy()
        twin.tallies = fixed(self.tallies)
        return twin.exchanged()

    def stored(self) -> bytes:
        """The state for a store that encrypts it and whose other writers fix coefficients too; nothing changes here.

        Levels are pooled in it, which may become common here.
        """
        twin = self.copy()
        twin.tallies = self.tallies.pooled()
        return twin.exchanged()

    def exchanged(self, *, newcomers: bool = False) -> bytes:
        """The state as it is in memory, for workers of one run and stores that encrypt it.

        Args:
            newcomers: Whether to say who has come since the last write, for workers alone: it is never stored.
        """
        new = self.newcomers
        state = TrialState(
            self.plan.canonical().decode(),
            self.tallies.state(),
            dict(sorted(self.dropped.records.items())),
            list(self.dropped),
            self.secret.mark,
            self.ended,
            self.chronicle.told,
            sorted(self.labels) or msgspec.UNSET,
            (new.records, new.units, sorted(new.hashes)) if newcomers else None,
            self.looks or msgspec.UNSET,
        )
        return pack(state)

    @classmethod
    def loads(cls, data: bytes, plan: Plan | None = None, *, key: bytes | None = None) -> Self:
        """The trial from its state, under the plan that made it: the one given must be that one.

        Args:
            data: What ``dumps`` gave.
            plan: The plan; if left out, the one in the state.
            key: The trial's key, if further records are to be folded; if left out, this machine's user's own.

        Raises:
            StateError: The state is damaged, truncated, or of another plan or key.
        """
        state, made_under = read_state(data, plan)
        trial = cls(made_under, key=key)
        trial.tallies = restored_holding(state.tallies, made_under)
        trial.dropped = Faults(state.dropped.items(), state.faults)
        trial.secret.restore(state.key_mark, destroyed=state.ended)
        # Whether any records came before a ledger that is only beginning: of a release, nobody is told how many.
        trial.chronicle = Chronicle(made_under, trial.n if made_under.release is None else 1)
        trial.chronicle.told, trial.labels = state.told, frozenset(state.labels or ())
        trial.chronicle.looks = state.looks or ()
        if state.newcomers is not None:
            records, units, hashes = state.newcomers
            trial.newcomers = Newcomers(records, units, frozenset(hashes))
        if trial.exchanged(newcomers=state.newcomers is not None) != bytes(data):  # one state has one form
            raise StateError("the state is damaged: it is not written as `dumps` writes it.")
        return trial

    def save(self, path: str | Path, *, positions: Positions | None = None) -> None:
        """Write the state to a file, in one step: a crash leaves the old file or the new one.

        The file is encrypted under the trial's key, and for its owner alone. Of a trial that has ended, whose key is
        gone, only the effects are left, rounded for others. Coefficients that are still to be fixed are fixed
        now (`fix`), and a `FixedWarning` says so.

        Args:
            path: Where to.
            positions: How far sources have been read, for those who go on from there.
        """
        if self.unfixed and self.n and not self.ended:  # of a trial that has ended no tallies are written
            self.fix()
            warnings.warn(f"{fixed_by(self.n)} To choose the moment, call `trial.fix()`.", FixedWarning, stacklevel=2)
        saved, key = self.saved(positions)
        saved.save(Path(path), key)
        self.chronicle.ledger = saved.ledger

    def saved(self, positions: Positions | None = None) -> tuple[Saved, FileKey | None]:
        """What `save` writes: the state or what is left of it, with the ledger; and under which key."""
        if self.ended:
            effects = self.chronicle.final_effects(self.tallies, self.dropped)
            final = Final(self.plan.canonical().decode(), effects, self.secret.users_mark)
            # How far sources were read is an exact count.
            return Saved(b"", None if self.released else positions, final, self.chronicle.ledger), None
        state, key = self.dumps(), self.secret.for_files()
        return Saved(state, positions, None, self.chronicle.written(self.n, Secret(key.key))), key

    @staticmethod
    def load(path: str | Path, plan: Plan | None = None, *, key: bytes | None = None) -> Trial:
        """The trial from a file that ``save`` wrote, or a run over files or streams."""
        return open_saved(path, plan, key=key)[0]

    def __repr__(self) -> str:
        counts = ", ".join(f"{arm}={n:_}" for arm, n in self.counts.items())
        return f"Trial: {self.plan.name} | n={self.n:_} | {counts}"

    def _repr_html_(self) -> str:
        """What it is and how many records are in it; looking at a trial computes no effects."""
        n = self.n
        rows = [[arm, f"{count:,}", f"{100 * count / n:.1f} %" if n else ABSENT] for arm, count in self.counts.items()]
        table = html_table(["arm", "records", "share"], rows, f"{self.plan.name}: {many(n, 'record')} folded")
        after = "trial.report() shows the final effects." if self.ended else "trial.effects() shows the effects."
        return f"<div>{table}<p>No record is kept. {after}</p></div>"


def open_saved(
    path: str | Path, plan: Plan | None = None, *, key: bytes | None = None
) -> tuple[Trial, Positions | None]:
    """The trial in a saved file, and how far its sources have been read: both from opening it once.

    Raises:
        StateError: The file cannot be read, is damaged, or is of another plan or key.
    """
    saved = load(path, key)
    if saved.final is not None:
        raise EndedError(
            f"{path}: the trial has ended and its tallies are destroyed; only its effects are left: `foldaway effects "
            f"{path}` prints them, and fa.Effects.load(path) reads them."
        )
    with naming(path):
        trial = Trial.loads(saved.state, plan, key=key)
    trial.chronicle.ledger = saved.ledger
    return trial, saved.positions


def opened_too(states: Sequence[Path]) -> str:
    """What to say of other states that the key of a trial opens, when the trial ends."""
    they = "it" if len(states) == 1 else "them"
    return f"the same key opens {joined(list(map(str, states)))}: nobody can read {they} after this end."


def fixed_by(records: int) -> str:
    """What to say when saving so many records has fixed coefficients."""
    return (
        f"saving has fixed how the covariates predict each outcome, from {many(records, 'record')}; later records do "
        "not change that. If you have records from before the trial, put coefficients into the plan instead, with "
        "`foldaway plan calibrate`."
    )


def _require_cast(faults: Faults, plan: Plan) -> None:
    """Refuse identifiers of a type that databases do not all write alike."""
    for fault in faults:
        if fault.rule == WRONG_TYPE and fault.column in (plan.unit, plan.cluster):
            name = fault.column
            raise RecordError(
                f"nothing was folded: the identifiers in {name!r} are neither text nor integers, and a database writes "
                f"others in its own way. Let the query cast them, as in CAST({name} AS VARCHAR) AS {name}."
            )
