"""The plan: the whole analysis, fixed before the first record."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from itertools import accumulate
from numbers import Integral
from pathlib import Path
from typing import Any, Self, get_type_hints

import msgspec

from foldaway.errors import PlanError
from foldaway.plan.bootstrap import Bootstrap
from foldaway.plan.fields import Settings
from foldaway.plan.rules import faults_of
from foldaway.plan.settings import MUST_BE, Fixed, parsed, typed


class Plan(Settings, frozen=True, kw_only=True, eq=False, forbid_unknown_fields=True, omit_defaults=True):
    """The analysis of a trial, fixed before the first record arrives.

    Attributes:
        name: The trial's name (letters, digits, dot, dash, underscore).
        arm: The column that names the arm.
        arms: Allocation probability of each arm; the first arm is the control.
        outcomes: Numeric columns to compare between arms.
        covariates: Columns measured before treatment, for precision.
        levels: The levels of each categorical covariate; the first is the reference.
        unit: The column that names what was randomised; also the cluster.
        weight: The column of observation weights.
        confidence: Coverage of the intervals.
        complete_units: A promise that all records of a unit come in one batch; gives CR0 and CR1.
        on_fault: ``"refuse"`` a batch with a faulty record whole, or ``"drop"`` and count such records.
        estimators: Those to report; all that the plan allows if left out.
        errors: The kinds of standard error to report (classical, HC0, HC1, HC2, CR0, CR1); all that the plan allows if
            left out. Only the tallies that these need are kept: with ``["classical"]`` alone not the robust one, whose
            size and cost grow with the fourth power of the number of columns.
        anytime_n: The number of records (units, for clustered errors) at which the anytime-valid
            interval is tightest.
        bootstrap: The bootstrap, or just its number of replicates; by unit if the plan has one, by record if not.
        cohort: The fewest records by which two states may differ that a server stores or answers, or that a run over
            files saves.
        max_wait: On a server, seconds after which fewer records than a cohort are stored all the same. Whoever compares
            the states before and after then learns the sum of few records, or of one.
        min_per_arm: On a server, the fewest records of every arm for an answer; devices, in a federated plan.
        remainder: Whether records short of a cohort are left out and counted, or included: on a server at the close, in
            a run over files at its end, where those left out wait for the next run.
        federated: For records that stay on devices, what a device sends: ``"one-message"`` (its triangular factor,
            once), ``"scores"`` (factors during the trial, its score at the close, which gives CR2 and CR3 too) or
            ``"delta"`` (counts and sums only). The device is the unit, and ``cohort`` counts devices.
        reply_deadline: Federated: seconds after the close in which reports still count.
        reply_share: Federated: the share of the devices whose reports end the wait early; in mode ``scores``, of those
            in the coefficients.
        retention: Federated: seconds that a device may keep its records.
        leverage: In mode scores, a leverage correction to report as well: ``"CR2"`` or ``"CR3"``.

    Example:
        >>> plan = Plan(name="demo", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
        >>> plan.control
        'a'
        >>> plan.assign("user-17") in plan.arms
        True
        >>> Plan.loads(plan.to_toml()) == plan
        True
    """

    def __post_init__(self) -> None:
        faults = list(self._coerce())
        if not faults:  # the rules rely on every setting having its type
            faults = list(faults_of(self))
        if faults:
            raise PlanError("\n".join(faults))

    def _coerce(self) -> Iterator[str]:
        """Bring each setting to its declared type; yield a sentence for each that will not go."""
        for setting, (kind, default) in _declared().items():
            try:
                value = typed(getattr(self, setting), kind)
            except msgspec.ValidationError:
                yield f"`{setting}` must be {MUST_BE[setting]}."
                continue
            if setting == "levels":
                value = Fixed(sorted(value.items()))  # in whatever order the table names them
            if setting == "bootstrap" and isinstance(value, int):
                value = Bootstrap(replicates=value)
            # msgspec leaves out of the canonical form what is the default, not what equals it.
            msgspec.structs.force_setattr(self, setting, default if value == default else value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.canonical() == other.canonical()

    def __hash__(self) -> int:
        return hash(self.canonical())

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the canonical form, in hexadecimal."""
        return hashlib.sha256(self.canonical()).hexdigest()

    def canonical(self) -> bytes:
        """The plan as JSON in UTF-8 without blanks: settings in declared order, those at their default left out.

        Arms keep their order, since the first is the control; `levels` goes by the covariates' names.
        """
        return msgspec.json.encode(self)

    def assign(self, unit: str | int | bytes) -> str:
        """The arm of a unit: the same on every machine, in the plan's proportions.

        BLAKE2b of the identifier under the plan's fingerprint as key gives a uniform number, which is
        looked up in the cumulated probabilities. 17, "17" and b"17" are the same unit.

        Example:
            >>> plan = Plan(name="demo", arm="g", arms={"a": 0.2, "b": 0.8}, outcomes=["y"])
            >>> arms = [plan.assign(i) for i in range(1000)]
            >>> 150 < arms.count("a") < 250
            True
        """
        if isinstance(unit, bool) or not isinstance(unit, str | Integral | bytes):
            raise TypeError("a unit is named by text, a whole number or bytes")
        # Text that is not valid Unicode gets an arm like any other: an error would quote the identifier.
        text = unit if isinstance(unit, bytes) else str(unit).encode(errors="surrogatepass")
        key = bytes.fromhex(self.fingerprint)
        digest = hashlib.blake2b(text, digest_size=8, key=key, person=b"foldaway-assign").digest()
        uniform = int.from_bytes(digest, "little") / 2**64
        for arm, upper in zip(self.arms, accumulate(self.arms.values()), strict=True):
            if uniform < upper:
                return arm
        return arm  # the probabilities add up to 1 only up to rounding

    def to_toml(self) -> str:
        """The plan as TOML."""
        import tomli_w

        return tomli_w.dumps(msgspec.to_builtins(self))

    def to_json(self) -> str:
        """The plan as JSON."""
        return msgspec.json.format(self.canonical(), indent=2).decode()

    def save(self, path: str | Path) -> None:
        """Write the plan to a ``.toml`` or ``.json`` file."""
        path = Path(path)
        kind = path.suffix.lower()
        if kind not in (".toml", ".json"):
            raise PlanError(f"a plan is saved as .toml or .json, not {kind or 'without a suffix'}.")
        path.write_text(self.to_json() if kind == ".json" else self.to_toml(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a plan from a ``.toml`` or ``.json`` file."""
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise PlanError(f"cannot read the plan {path}: {error.strerror}.") from None
        except UnicodeDecodeError:
            raise PlanError(f"cannot read the plan {path}: it is not UTF-8 text.") from None
        try:
            return cls.loads(text)
        except PlanError as error:
            told = str(error)
        raise PlanError(f"{path} is not a plan that can be run:\n{told}")

    @classmethod
    def loads(cls, text: str) -> Self:
        """Read a plan from TOML or JSON text."""
        return cls(**parsed(text))


@cache
def _declared() -> dict[str, tuple[Any, Any]]:
    """The type and the default of each setting."""
    types = get_type_hints(Plan)
    return {field.name: (types[field.name], field.default) for field in msgspec.structs.fields(Plan)}
