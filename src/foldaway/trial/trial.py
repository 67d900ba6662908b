"""A trial: a plan and its tallies."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

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
    KeyWarning,
    LossWarning,
    PlanError,
    RecordError,
    SampleRatioWarning,
    SourceError,
    TooEarly,
    joined,
    many,
)
from foldaway.keeping.cohort import Newcomers
from foldaway.keeping.listed_places import forget_places
from foldaway.keeping.saved import Positions, Saved
from foldaway.numerics.block import Floats
from foldaway.numerics.threads import cores, on_threads, one_core
from foldaway.plan import Flow, Plan
from foldaway.plan.arms import secret_arm
from foldaway.records import Faults, check
from foldaway.records.faults import FaultyBatch
from foldaway.records.values import WRONG_TYPE
from foldaway.table import ABSENT, html_table
from foldaway.tallies import Lean, emptied, grouped_of
from foldaway.tallies.answer import read_answer
from foldaway.tallies.levels import marked
from foldaway.tallies.moments import Arms
from foldaway.trial.ending import finish_ending
from foldaway.trial.kept import KeptTrial
from foldaway.trial.units import large_slices, with_batch

if TYPE_CHECKING:
    from foldaway.auditing.finding import Audit
    from foldaway.report.page.document import Report


class Trial(KeptTrial):
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


def opened_too(states: Sequence[Path]) -> str:
    """What to say of other states that the key of a trial opens, when the trial ends."""
    they = "it" if len(states) == 1 else "them"
    return f"the same key opens {joined(list(map(str, states)))}: nobody can read {they} after this end."


def _require_cast(faults: Faults, plan: Plan) -> None:
    """Refuse identifiers of a type that databases do not all write alike."""
    for fault in faults:
        if fault.rule == WRONG_TYPE and fault.column in (plan.unit, plan.cluster):
            name = fault.column
            raise RecordError(
                f"nothing was folded: the identifiers in {name!r} are neither text nor integers, and a database writes "
                f"others in its own way. Let the query cast them, as in CAST({name} AS VARCHAR) AS {name}."
            )
