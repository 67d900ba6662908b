"""A trial as it is kept: merged with others, written and read."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Self

import msgspec

from foldaway.errors import EndedError, FixedWarning, StateError, many
from foldaway.inference.adjusting import Start
from foldaway.inference.fixing import fixed
from foldaway.keeping.cohort import Newcomers
from foldaway.keeping.saved import Final, Positions, Saved, load, naming, others_under
from foldaway.keeping.secret import Secret
from foldaway.keeping.state import pack
from foldaway.keeping.user_keys import FileKey
from foldaway.plan import Plan
from foldaway.records import Faults
from foldaway.tallies import Held, empty_holding, restored_holding
from foldaway.trial.chronicle import Chronicle
from foldaway.trial.key import TrialKey
from foldaway.trial.state import TrialState, differing, read_state
from foldaway.trial.units import Seen


class KeptTrial:
    """A `Trial` but for what is done with it; its attributes are explained there."""

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

    def merge(self, other: KeptTrial) -> Self:
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

    def __add__(self, other: KeptTrial) -> Self:
        if not isinstance(other, KeptTrial):
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

    @property
    def ended(self) -> bool:
        """Whether the trial has ended, and takes no further records."""
        return self.secret.destroyed

    @property
    def released(self) -> bool:
        """Whether the effects were told with noise, and nothing exact is left."""
        return self.tallies.released

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
            self.chronicle.looks or msgspec.UNSET,
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

    @classmethod
    def load(cls, path: str | Path, plan: Plan | None = None, *, key: bytes | None = None) -> Self:
        """The trial from a file that ``save`` wrote, or a run over files or streams."""
        return cls.opened(path, plan, key=key)[0]

    @classmethod
    def opened(
        cls, path: str | Path, plan: Plan | None = None, *, key: bytes | None = None
    ) -> tuple[Self, Positions | None]:
        """The trial in a saved file, and how far its sources have been read: both from opening it once.

        Raises:
            StateError: The file cannot be read, is damaged, or is of another plan or key.
        """
        saved = load(path, key)
        if saved.final is not None:
            raise EndedError(
                f"{path}: the trial has ended and its tallies are destroyed; only its effects are left: `foldaway "
                f"effects {path}` prints them, and fa.Effects.load(path) reads them."
            )
        with naming(path):
            trial = cls.loads(saved.state, plan, key=key)
        trial.chronicle.ledger = saved.ledger
        return trial, saved.positions

    def other_states(self, path: str | Path | None = None) -> list[Path]:
        """The other saved states that this trial's key opens, and nobody once it has ended, as far as they are known.

        Known are those that this machine's user has saved, and states in the same folder.

        Args:
            path: The trial's own file.
        """
        key = self.secret.in_use_for_files()
        return [] if key is None else others_under(key, None if path is None else Path(path))


def fixed_by(records: int) -> str:
    """What to say when saving so many records has fixed coefficients."""
    return (
        f"saving has fixed how the covariates predict each outcome, from {many(records, 'record')}; later records do "
        "not change that. If you have records from before the trial, put coefficients into the plan instead, with "
        "`foldaway plan calibrate`."
    )
