"""A trial: a plan and its tallies."""

from __future__ import annotations

import copy
import dataclasses
import secrets
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from foldaway.effects import Effects
from foldaway.effects.analysis import effects_of
from foldaway.effects.group_analysis import effects_of_groups
from foldaway.effects.released import coarse
from foldaway.effects.segment_analysis import effects_by_segment
from foldaway.errors import (
    EstimateError,
    LossWarning,
    PlanError,
    SampleRatioWarning,
    SealedError,
    StateError,
    TooEarly,
    instead_of,
)
from foldaway.evidence.ledger import CLOSED, KEY_DESTROYED, Ledger, now
from foldaway.evidence.software import software
from foldaway.inference.adjusting import Start, fit_starts
from foldaway.inference.rounding import round_count
from foldaway.keeping.cohort import Census, Newcomers, Told, may_tell, may_write, too_early
from foldaway.keeping.saved import Final, Positions, Saved, load, naming
from foldaway.keeping.secret import Secret
from foldaway.keeping.state import pack, unpack
from foldaway.keeping.user_keys import FileKey, destroy_user_key, user_file_key, user_key, user_signer
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.records import Fault, Faults, check
from foldaway.records.batch import Batch
from foldaway.records.faults import excess
from foldaway.records.keys import Keys, RecordKeys, UnitKeys
from foldaway.tallies import Arms, Grouped, Holding, empty_holding, restored_holding
from foldaway.tallies.arm import ArmTally
from foldaway.tallies.pooling import rare_levels

if TYPE_CHECKING:
    from foldaway.report.page.document import Report


_LOOK = 1_024  # records whose units are looked at together


class TrialState(msgspec.Struct):
    """What a trial keeps, and the plan it was kept under, in canonical form."""

    plan: str
    tallies: Any
    dropped: dict[str, int]
    faults: list[Fault]
    key_mark: bytes
    sealed: bool
    told: Told | None = None
    newcomers: tuple[int, int, list[int]] | None = None  # between workers of one run alone


class Trial:
    """A plan and its tallies: fold records in, read effects out; no record is kept.

    Args:
        plan: The plan.
        key: The 128-bit secret behind units' groups and the bootstrap's weights, under which saved files are encrypted,
            too; this machine's user's own for the design if left out. Machines that fold records of the same units must
            share it.

    Example:
        >>> plan = Plan(name="demo", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
        >>> trial = Trial(plan)
        >>> trial.fold({"group": ["a", "b", "a", "b"], "y": [1.0, 2.0, 2.0, 4.0]})
        >>> trial.fold([{"group": "b", "y": 3.0}])
        >>> trial
        Trial: demo | n=5 | a=2, b=3
        >>> effect = trial.effects().filter(estimator="difference", se_kind="welch")[0]
        >>> effect.estimate, round(effect.std_error, 4)
        (1.5, 0.7638)
    """

    def __init__(self, plan: Plan, *, key: bytes | None = None) -> None:
        if not isinstance(plan, Plan):
            raise TypeError("a trial is made from a plan: fa.Trial(fa.Plan.load(path)).")
        self.plan = plan
        self._tallies: Holding = empty_holding(plan)
        self._faults = Faults()
        self._newcomers = Newcomers()
        self._told: Told | None = None
        self._sealed = False
        self._secret = None if key is None else Secret(key)  # without one given, it comes with the first record
        self._given = key is not None
        self.ledger = Ledger()  # what happened, once that is to outlive the process
        self._begun = (now(), 0)  # when the plan was fixed, and how many records there were by then
        self._users_mark = b""  # of the user's own key, once the trial is sealed
        self._key_mark = self._secret.mark() if self._secret is not None and plan.keyed else b""

    def fold(self, data: Any, *, text: bool = False, unreadable: int = 0) -> None:
        """Take a batch of records in; nothing of it is kept.

        Args:
            data: A pandas, polars, pyarrow or DuckDB table, a dict of columns, or a list of dicts.
            text: Whether numbers may come as text, as in CSV.
            unreadable: Lines that whoever read the data could not read as records; faults like any other.

        Raises:
            RecordError: The batch is refused whole and the trial is as it was.
            SealedError: The trial is sealed, or was loaded without its key.
        """
        if self.plan.federated is not None and not self.plan.complete_units:
            raise PlanError("the records of this plan stay on its devices: use foldaway.federated.Device.")
        batch, faults = check(data, self.plan, text=text, ragged=unreadable, keys=self._keys())
        folded = self._tallies.fold(batch) if len(batch) else self._tallies
        mark = self._secret.mark() if len(batch) and self._secret is not None and self.plan.keyed else self._key_mark
        newcomers = (self._newcomers + self._units_in(batch)).within(self.plan.privacy)
        # All of it or nothing, even if the thread is interrupted: the tallies are values.
        self._tallies, self._faults, self._key_mark, self._newcomers = folded, self._faults + faults, mark, newcomers

    def _units_in(self, batch: Batch) -> Newcomers:
        """How many units a batch is of; hashes only where they may come back, and only until there is a cohort."""
        if batch.unit is not None:
            return Newcomers(len(batch), int(np.count_nonzero(np.diff(batch.unit, prepend=-1))))
        if self.plan.one_each:
            return Newcomers(len(batch), len(batch))
        hashes: set[int] = set()
        for start in range(0, len(batch), _LOOK):
            if len(hashes) >= self.plan.privacy.cohort or may_write(self.plan.privacy, self._newcomers):
                break
            who = batch.key if batch.who is None else batch.who
            assert who is not None
            hashes.update(who[start : start + _LOOK].tolist())
        return Newcomers(len(batch), 0, frozenset(hashes))

    @property
    def newcomers(self) -> Newcomers:
        """Who has come since the tallies were last written."""
        return self._newcomers

    def wrote(self) -> None:
        """The tallies were written: whoever comes from now on is new."""
        self._newcomers = Newcomers()

    def census(self) -> Census:
        """How many stand behind the tallies."""
        if self.plan.grouped and not self.plan.within_clusters and isinstance(self._tallies, Grouped):
            cells = self._tallies.records.astype(int).tolist()
            return Census(dict(zip(self.plan.arms, cells, strict=True)), by_group=True)
        counts = self._tallies.units if isinstance(self._tallies, Arms) else self._tallies.counts
        return Census({arm: [n] for arm, n in zip(self.plan.arms, counts, strict=True)})

    def fold_clusters(self, codes: NDArray[np.intp], counts: NDArray[np.int64], triangles: Floats) -> None:
        """Take whole clusters in, of which only the second moments have come.

        Args:
            codes: Each cluster's arm, by its place in the plan.
            counts: Each cluster's number of records.
            triangles: Each cluster's triangular factor of its rows z = [1, x, y], times the roots of their weights:
                J by K by K.
        """
        assert isinstance(self._tallies, Arms)
        self._tallies = self._tallies.fold_clusters(codes, counts, triangles)

    def fold_totals(
        self, codes: NDArray[np.intp], groups: NDArray[np.intp], counts: NDArray[np.int64], totals: Floats
    ) -> None:
        """Take whole units in, of which only sums have come.

        Args:
            codes: Each unit's arm, by its place in the plan.
            groups: Each unit's group.
            counts: Each unit's number of records.
            totals: Each unit's sums of the outcomes and, with the plan's coefficients, of their ỹ.
        """
        assert isinstance(self._tallies, Grouped)
        self._tallies = self._tallies.fold_totals(codes, groups, counts, totals)

    def _keys(self) -> Keys | None:
        if self._sealed:
            raise SealedError("the trial is sealed: no further record can be folded.")
        if not self.plan.keyed:
            return None
        secret = self._held_secret()
        if self.plan.clustering is not None:
            return UnitKeys(secret.of_groups() if self.plan.grouped else secret.of_units(self.plan.fingerprint))
        # Records without a unit are numbered, each batch under a key of its own: no two records ever share weights.
        return RecordKeys(secret.of_shard(secrets.token_bytes(16)))

    def _held_secret(self) -> Secret:
        """The key: the one given, or else the user's own, if it is the one that earlier records were folded under."""
        secret = self._secret
        if secret is None:
            key = user_key(self.plan.design, new=not self._key_mark)
            secret = None if key is None else Secret(key)
            if secret is None or self._key_mark not in (b"", secret.mark()):
                raise SealedError(
                    "this trial was loaded without its key, and this machine's user does not have it: to fold further "
                    "records, load it with key= (or --key)."
                )
        self._secret = secret
        return secret

    @property
    def key(self) -> bytes:
        """The trial's key, to share with another machine or to keep apart from the state."""
        if self._sealed or not self.plan.keyed:
            raise SealedError(
                "there is no key here: " + ("the trial is sealed." if self._sealed else "the plan needs none.")
            )
        return self._held_secret().reveal()

    @property
    def sealed(self) -> bool:
        """Whether the trial takes no further records."""
        return self._sealed

    def seal(self, *, everywhere: bool = True) -> None:
        """End the trial: destroy the key, so that nobody can ever tie an identifier to a group; fold no more.

        Args:
            everywhere: Whether the user's own key for the design goes too, so that no other state of it can take
                records any more. If not, call again once the sealed state is safe.
        """
        if not self._sealed and not self._given and self.n:
            self._users_mark = self._key_mark or self._own_mark()
        if not self._sealed and not self.ledger.closed:
            self._note_end()
        if self._secret is not None:
            self._secret.destroy()
        self._sealed = True
        if everywhere and self._users_mark:
            destroy_user_key(self.plan.design, self._users_mark)
            self._note_destroyed(self._users_mark)

    def _own_mark(self) -> bytes:
        """The mark of the user's own key, under which the saved files of a plan without keyed hashes are encrypted."""
        key = user_key(self.plan.design, new=False)
        return b"" if key is None else Secret(key).mark()

    def merge(self, other: Trial) -> Self:
        """The trial of both sets of records; the two are left as they were."""
        if self is other and self.n:
            raise StateError("merging a trial with itself would count its records twice.")
        if self.plan.fingerprint != other.plan.fingerprint:
            differing = _differing(self.plan, other.plan)
            raise StateError(f"only trials of the same plan can be merged; these plans differ in {differing}.")
        if self.plan.clustering is not None and self._key_mark != other._key_mark and self.n and other.n:
            raise StateError(
                "these trials were folded under different keys, so a unit would count as two; "
                "give every worker the same key: fa.Trial(plan, key=trial.key), or --key on the command line."
            )
        merged = self.copy()
        merged._tallies = self._tallies + other._tallies  # type: ignore[operator]  # of one plan, so of one kind
        merged._faults = self._faults + other._faults
        merged._told = other._told if self._told is None else self._told.plus(other._told)
        merged._newcomers = (self._newcomers + other._newcomers).within(self.plan.privacy)
        merged._sealed = self._sealed or other._sealed
        if other.ledger:  # workers of one run have none
            merged.ledger = self.ledger.merge(other.ledger, user_signer())
        same = self._key_mark == other._key_mark
        if (not self.n and not same) or (self._secret is None and same):
            if not _same(self._secret, other._secret):
                merged._given = other._given
            merged._secret, merged._key_mark = _twin(other._secret), other._key_mark
        if merged._sealed:
            merged._secret = None
        return merged

    def __add__(self, other: Trial) -> Self:
        if not isinstance(other, Trial):
            return NotImplemented
        return self.merge(other)

    def copy(self) -> Self:
        """A trial of its own with the same tallies and the same key."""
        twin = copy.copy(self)
        twin._secret = _twin(self._secret)
        return twin

    @property
    def n(self) -> int:
        """Records folded."""
        return sum(self._tallies.counts)

    @property
    def counts(self) -> dict[str, int]:
        """Records folded, by arm."""
        return dict(zip(self.plan.arms, self._tallies.counts, strict=True))

    @property
    def dropped(self) -> Faults:
        """Faulty records left out, where the plan says to drop them."""
        return self._faults

    @property
    def arms(self) -> Sequence[ArmTally]:
        """The tallies by arm, of a trial that keeps moments; a trial that keeps sums has none."""
        return self._tallies.arms if isinstance(self._tallies, Arms) else ()

    @property
    def tallies(self) -> Holding:
        """What the trial holds."""
        return self._tallies

    def effects(
        self,
        *,
        population: bool = True,
        rounded: bool = False,
        control: str | None = None,
    ) -> Effects:
        """What the trial has found so far.

        Args:
            control: The arm that all others are compared with; the plan's first if left out.
            population: Whether the errors of the interacted estimator allow for the covariates' mean being that of a
                sample, so that the effect is the population's; without, it is the effect on these very records.
            rounded: Whether to round them for others, so that no person's value can be worked out from several answers.
        """
        plan, tallies = (self.plan, self._tallies) if control is None else against(control, self.plan, self._tallies)
        if isinstance(tallies, Grouped):
            effects = effects_of_groups(plan, tallies, self._faults, rounded=rounded)
            if not excess(self._faults, self.n, plan.drop_limit):
                effects = dataclasses.replace(effects, segments=effects_by_segment(plan, tallies, rounded=rounded))
        else:
            effects = effects_of(plan, tallies.arms, self._faults, population=population, rounded=rounded)
        if effects.alarm is not None:
            warnings.warn(effects.alarm, LossWarning if effects.sample_ratio.ok else SampleRatioWarning, stacklevel=2)
        return effects

    def release(self, *, everywhere: bool = True) -> Effects:
        """Tell the effects once, with the noise of the plan's `release`; the exact tallies are then gone, for good.

        The trial is sealed. Asked again, in this process or from the saved state, it gives the same effects: noise that
        is drawn twice could be averaged away. Copies of the state from before must go; ``foldaway release STATE`` sees
        to the file, and to the key that other copies are tied to.

        Args:
            everywhere: As for `seal`.

        Raises:
            PlanError: The plan has no `release`.
            EstimateError: There is no record yet, or OpenDP is not installed.
        """
        if self.plan.release is None:
            raise PlanError("this plan has no `release`, which says how much noise there must be; plans never change.")
        if not self.n and not self.released:
            raise EstimateError("there are no records yet, so there is nothing to release.")
        assert isinstance(self._tallies, Grouped)
        # What was left out and clipped was counted exactly, and goes too.
        self._tallies, self._faults = self._tallies.release(), Faults()
        self.seal(everywhere=everywhere)
        return self.effects()

    @property
    def released(self) -> bool:
        """Whether the effects were told with noise, and nothing exact is left."""
        return isinstance(self._tallies, Grouped) and self._tallies.released

    def report(self, *, positions: Positions | None = None, told: Effects | None = None) -> Report:
        """A page for people who are no statisticians: what was asked, found and kept, and whether to trust it.

        Args:
            positions: What a run over files or streams saved with the state, which is then in the list of what exists.
            told: Effects for others, from `tell`; exact ones if left out.

        Example:
            >>> plan = Plan(name="demo", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
            >>> "No record was kept." in Trial(plan).report().html
            True
        """
        from foldaway.report.page.page import trial_page

        saved = Saved(self.copy().dumps(), positions, ledger=self.ledger)  # a report fixes nothing
        return trial_page(quiet_effects(self) if told is None else told, self.plan, self._tallies, saved)

    @property
    def rich(self) -> bool:
        """Whether the trial holds moments by group, which become sums when it is first saved."""
        return isinstance(self._tallies, Grouped) and self._tallies.moments is not None

    def start(self) -> Start | None:
        """The coefficients that are fixed, or that the records so far give; none if the trial keeps moments."""
        tallies = self._tallies
        if not isinstance(tallies, Grouped):
            return None
        if tallies.moments is None:
            return Start(tallies.predictor, None, tallies.why)
        start = fit_starts(tallies.moments, self.plan)
        if start.predictor is None:
            saved = "it was saved before there were so many. Put coefficients into its plan: `foldaway plan calibrate`."
            return start._replace(why=f"{start.why.partition(';')[0]}, and {saved}")
        return start

    def fix(self, start: Start | None = None) -> None:
        """Make a rich trial lean: fix the coefficients and keep sums alone, from which no regression can be read.

        Of a trial that keeps moments, levels that too few people have in an arm are pooled. Devices and sites have
        rules of their own for what they send.

        Args:
            start: The coefficients, if they are to come from more records than are here.
        """
        if isinstance(self._tallies, Grouped) and self.rich and self.n:
            start = start or self.start()
            assert start is not None
            self._tallies = self._tallies.fixed(start.predictor, start.without, start.why)
        if isinstance(self._tallies, Grouped):
            self._tallies = self._tallies.pooled(self.plan.privacy.smallest_cell)
        elif isinstance(self._tallies, Arms) and self.plan.federated is None:
            rare = rare_levels(self.plan, self._tallies.arms, self.plan.privacy.smallest_cell)
            self._tallies = self._tallies.pool(rare)

    def dumps(self) -> bytes:
        """The state as bytes: the plan and its tallies, nothing else; the key is not in it. The trial is lean now."""
        self.fix()
        return self.exchanged()

    def exchanged(self, *, newcomers: bool = False) -> bytes:
        """The state as it is in memory, for workers of one run and stores that encrypt it.

        Args:
            newcomers: Whether to say who has come since the last write, for workers alone: it is never stored.
        """
        new = self._newcomers
        state = TrialState(
            self.plan.canonical().decode(),
            self._tallies.state(),
            dict(sorted(self._faults.records.items())),
            list(self._faults),
            self._key_mark,
            self._sealed,
            self._told,
            (new.records, new.units, sorted(new.hashes)) if newcomers else None,
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
        state = unpack(data, TrialState)
        made_under = _plan_of(state)
        if plan is not None and plan.fingerprint != made_under.fingerprint:
            raise StateError(
                f"the state was made under another plan ({made_under.name}), which differs in "
                f"{_differing(plan, made_under)}; load it with that one."
            )
        trial = cls(made_under, key=key)
        trial._tallies = restored_holding(state.tallies, made_under)
        trial._faults = Faults(state.dropped.items(), state.faults)
        trial._restore_key(state, given=key is not None)
        trial._told = state.told
        trial._begun = (now(), trial.n)
        if state.newcomers is not None:
            records, units, hashes = state.newcomers
            trial._newcomers = Newcomers(records, units, frozenset(hashes))
        if min([*state.dropped.values(), *(fault.records for fault in state.faults)], default=1) < 1:
            raise StateError("the state is damaged: its counts do not fit.")
        if trial.exchanged(newcomers=state.newcomers is not None) != bytes(data):  # one state has one form
            raise StateError("the state is damaged: it is not written as `dumps` writes it.")
        return trial

    def _restore_key(self, state: TrialState, *, given: bool) -> None:
        if given and not state.sealed and state.key_mark not in (b"", self._key_mark):
            raise StateError("the state was made under another key; load it with that one.")
        self._sealed = state.sealed
        self._secret = None if state.sealed else self._secret
        self._key_mark = state.key_mark

    def save(self, path: str | Path, *, positions: Positions | None = None) -> None:
        """Write the state to a file, in one step: a crash leaves the old file or the new one.

        The file is encrypted under the trial's key, and for its owner alone. Of a sealed trial, whose key is gone, only
        the effects are left, rounded for others.

        Args:
            path: Where to.
            positions: How far sources have been read, for those who go on from there.
        """
        saved, key = self.saved(positions)
        saved.save(Path(path), key)
        self.ledger = saved.ledger

    def saved(self, positions: Positions | None = None) -> tuple[Saved, FileKey | None]:
        """What `save` writes: the state or what is left of it, with the ledger; and under which key."""
        if self._sealed:
            return Saved(b"", positions, self.final(), self.ledger), None
        state, key = self.dumps(), self.file_key()
        self.register()
        ledger = self.ledger.used(user_signer(), Secret(key.key).mark().hex())
        return Saved(state, positions, None, ledger.written(user_signer(), self._told_count(), self._cohort)), key

    def register(self) -> str:
        """Begin the ledger with the plan, if it has not begun, and give its head, to be published elsewhere."""
        time, records = self._begun
        self.ledger = self.ledger.registered(user_signer(), self.plan.fingerprint, round_count(records), time)
        return self.ledger.head

    @property
    def _cohort(self) -> int:
        return self.plan.privacy.cohort

    def _told_count(self) -> int:
        """How many records others may know of."""
        return (round_count if self.plan.release is None else coarse)(self.n)

    def audited(self) -> None:
        """Note in the ledger whether anybody could be solved for by whoever reads the tallies in the clear."""
        from foldaway.auditing.audit import audit  # not for those who end nothing

        self.register()
        found = audit(self.plan, self._tallies)
        self.ledger = self.ledger.audited(user_signer(), found.attacks, found.solved, found.solved_with_keys)

    def _note_answer(self, effects: str) -> None:
        """Note effects that others see, and the tallies they can be read from again, if these are the ones kept."""
        self.register()
        self.ledger = self.ledger.answered(user_signer(), effects, self.commitment(effects))

    def commitment(self, effects: str) -> str:
        """A hash of the tallies as they are kept, under the trial's key; empty if other effects are read from these.

        It ties effects that were told to tallies that somebody has kept, and tells nothing to whoever lacks the key.
        """
        key = self._key()
        if self.released or key is None:
            return ""
        kept = self.copy()
        kept.fix()
        if quiet_effects(kept, rounded=True).to_json() != effects:
            return ""
        return Secret(key).commitment(msgspec.msgpack.encode(kept._tallies.state()))

    def _key(self) -> bytes | None:
        """The trial's key, if it is there."""
        if self._secret is not None and self._secret.held:
            return self._secret.reveal()
        return user_key(self.plan.design, new=False)

    def _note_end(self) -> None:
        """Note the audit, the final effects and the close, as long as tallies and key are there."""
        self.register()
        key, final = self._key(), self.final()
        if key is not None:
            self.ledger = self.ledger.used(user_signer(), Secret(key).mark().hex())
        if not self.released:
            self.audited()
        if final.effects is not None:
            self._note_answer(final.effects)
        about = {"records": None if final.effects is None else self._told_count(), **software()}
        self.ledger = self.ledger.add(user_signer(), CLOSED, about)

    def _note_destroyed(self, mark: bytes) -> None:
        """Note that a key is gone, if the ledger knows of it."""
        if mark.hex() in self.ledger.keys_left():
            self.ledger = self.ledger.add(user_signer(), KEY_DESTROYED, {"key": mark.hex()})

    def file_key(self) -> FileKey:
        """What saved files of this trial are encrypted under."""
        held = None if self._secret is None else self._secret.reveal()
        if self._given and held is not None:
            return FileKey(self.plan.design, held)
        return user_file_key(self.plan.design, held)

    def final(self) -> Final:
        """What is left of the trial when it is sealed: its effects, if enough stand behind them."""
        last = None if self._told is None else self._told.census
        effects = None if self._told is None else self._told.effects or None
        if self.plan.release is not None:
            effects = quiet_effects(self).to_json() if self.released else None
        elif may_tell(self.plan.privacy, self.census(), last, growth=0):
            effects = quiet_effects(self, rounded=True).to_json()
        return Final(self.plan.canonical().decode(), effects, self._users_mark)

    def prepare_sealing(self) -> None:
        """Before a store is closed for good: draw the release, if there is to be one, and see that effects are left.

        Raises:
            TooEarly: There would be none.
        """
        if self.plan.release is not None and self.n:
            self.release(everywhere=False)
        if self.final().effects is None:
            raise TooEarly(
                "the trial was not closed, because it would end without effects: too few units have come for effects "
                "that others may see. Wait for more, or use `foldaway seal STORE --exact`."
            )
        self.seal(everywhere=False)

    def tell(self) -> Effects:
        """Effects for others: rounded, and new ones only after growth; save the trial after asking.

        Raises:
            TooEarly: Too few stand behind them.
        """
        census = self.census()
        if may_tell(self.plan.privacy, census, None if self._told is None else self._told.census):
            self._told = Told(census, quiet_effects(self, rounded=True).to_json())
            self._note_answer(self._told.effects)
        if self._told is None or not self._told.effects:
            raise too_early(self.plan.privacy)
        return Effects.from_json(self._told.effects)

    @staticmethod
    def load(path: str | Path, plan: Plan | None = None, *, key: bytes | None = None) -> Trial:
        """The trial from a file that ``save`` wrote, or a run over files or streams."""
        return open_saved(path, plan, key=key)[0]

    def __repr__(self) -> str:
        counts = ", ".join(f"{arm}={n:_}" for arm, n in self.counts.items())
        return f"Trial: {self.plan.name} | n={self.n:_} | {counts}"


def against(control: str, plan: Plan, tallies: Holding) -> tuple[Plan, Holding]:
    """The same records with another arm in the first place, as all others are compared with that.

    Raises:
        EstimateError: There is no such arm.
    """
    if control not in plan.arms:
        raise EstimateError(f"there is no arm {control!r}; the arms are {', '.join(plan.arms)}.")
    arms = [control, *(arm for arm in plan.arms if arm != control)]
    places = [list(plan.arms).index(arm) for arm in arms]
    turned = msgspec.structs.replace(plan, arms={arm: plan.arms[arm] for arm in arms})
    return turned, tallies.turned(turned, places)


def quiet_effects(trial: Trial, *, rounded: bool = False) -> Effects:
    """The trial's effects, without the warning: what it would say is in them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SampleRatioWarning)
        return trial.effects(rounded=rounded)


def open_saved(
    path: str | Path, plan: Plan | None = None, *, key: bytes | None = None
) -> tuple[Trial, Positions | None]:
    """The trial in a saved file, and how far its sources have been read: both from opening it once.

    Raises:
        StateError: The file cannot be read, is damaged, or is of another plan or key.
    """
    saved = load(path, key)
    if saved.final is not None:
        raise SealedError(
            f"{path}: the trial is sealed and its tallies are destroyed; only its effects are left: `foldaway effects "
            f"{path}` prints them, and fa.saved_effects(path) reads them."
        )
    with naming(path):
        trial = Trial.loads(saved.state, plan, key=key)
    trial.ledger = saved.ledger
    return trial, saved.positions


def saved_effects(path: str | Path, *, key: bytes | None = None) -> Effects:
    """The effects in a saved file, whether its trial is sealed or not; of a sealed one, rounded.

    Args:
        path: The file.
        key: The trial's key; if left out, that of this machine's user.

    Raises:
        TooEarly: The trial was sealed with too few units for effects.

    Example:
        >>> import tempfile
        >>> plan = Plan(name="demo", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
        >>> trial = Trial(plan, key=bytes(16))
        >>> trial.fold({"g": ["a", "b"] * 60, "y": [float(i % 7) for i in range(120)]})
        >>> trial.seal()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     trial.save(Path(folder, "state"))
        ...     saved_effects(Path(folder, "state")).rounded
        True
    """
    saved = load(path, key)
    if saved.final is None:
        return quiet_effects(open_saved(path, key=key)[0])
    if saved.final.effects is None:
        raise TooEarly(f"{path}: the trial was sealed without effects, since too few units had come.")
    return dataclasses.replace(Effects.from_json(saved.final.effects), final=True)


def _plan_of(state: TrialState) -> Plan:
    with instead_of(PlanError, StateError("the state is damaged: it does not hold a plan.")):
        return Plan.loads(state.plan)


def _differing(plan: Plan, other: Plan) -> str:
    """The settings in which two plans differ."""
    ours, theirs = (msgspec.json.decode(each.canonical()) for each in (plan, other))
    names = [name for name in Plan.__struct_fields__ if ours.get(name) != theirs.get(name)]
    return ", ".join(f"`{name}`" for name in names) or "the order of its arms"


def finish_sealing(path: Path, *, given: bool = False) -> Ledger:
    """Destroy the user's key of a sealed trial, in case a crash came before that, and note it in the trial's file.

    Args:
        path: The file of what is left of the trial.
        given: Whether the trial had a key of its own, which is destroyed.
    """
    saved = load(path)
    assert saved.final is not None
    mark, ledger = saved.final.key_mark, saved.ledger
    if mark:
        destroy_user_key(Plan.loads(saved.final.plan).design, mark)
    left = ledger.keys_left()
    others = [each for each in left if each != mark.hex()]
    for each in left:
        # Of several keys, such as other users' whose states were merged, nobody here knows which was given.
        if each not in others or (given and len(others) == 1):
            ledger = ledger.add(user_signer(), KEY_DESTROYED, {"key": each})
    if ledger.head != saved.ledger.head:
        msgspec.structs.replace(saved, ledger=ledger).save(path, None)
    return ledger


def _same(secret: Secret | None, other: Secret | None) -> bool:
    return secret is not None and other is not None and secret.held and other.held and secret.mark() == other.mark()


def _twin(secret: Secret | None) -> Secret | None:
    """The same key in a place of its own, so that destroying one leaves the other; none for a destroyed one."""
    return Secret(secret.reveal()) if secret is not None and secret.held else None
