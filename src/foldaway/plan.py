"""The plan: the whole analysis, fixed before the first record."""

from __future__ import annotations

import hashlib
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, Self, get_type_hints

import msgspec

from foldaway.errors import PlanError

ESTIMATORS = ("ipw", "difference", "regression", "interacted")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

# The robust tally keeps about k⁴/4 numbers per arm; at 60 columns that is 27 MB.
MOST_COLUMNS = 60

# Arm codes travel as 8-bit integers, with -1 for "unknown".
MOST_ARMS = 100


class Fixed(dict[str, Any]):
    """A dict that cannot change, so that a plan cannot either."""

    def _refuse(self, *_: object, **__: object) -> None:
        raise TypeError("a plan never changes: make another plan")

    __setitem__ = __delitem__ = update = pop = popitem = clear = setdefault = __ior__ = _refuse  # type: ignore[assignment]


def _fixed(value: Any) -> Any:
    """The value as one that cannot change."""
    if isinstance(value, dict):
        return Fixed({key: _fixed(item) for key, item in value.items()})
    return tuple(value) if isinstance(value, list) else value


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The analysis of a trial, fixed before the first record arrives.

    Args:
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
        anytime_n: The number of records (units, for clustered errors) at which the anytime-valid
            interval is tightest.

    Example:
        >>> plan = Plan(name="demo", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
        >>> plan.control
        'a'
        >>> plan.assign("user-17") in plan.arms
        True
        >>> Plan.loads(plan.to_toml()) == plan
        True
    """

    name: str
    arm: str
    arms: Mapping[str, float]
    outcomes: Sequence[str]
    covariates: Sequence[str] = ()
    levels: Mapping[str, Sequence[str]] = {}
    unit: str | None = None
    weight: str | None = None
    confidence: float = 0.95
    complete_units: bool = False
    on_fault: Literal["refuse", "drop"] = "refuse"
    estimators: Sequence[str] = ()
    anytime_n: int = 10_000

    def __post_init__(self) -> None:
        faults = list(self._coerce())
        if not faults:  # the checks below rely on every field having its type
            faults = list(_faults(self))
        if faults:
            raise PlanError("\n".join(faults))

    def _coerce(self) -> Iterator[str]:
        """Bring each field to its declared type; yield a sentence for each that will not go."""
        for field, kind in get_type_hints(type(self)).items():
            value = getattr(self, field)
            try:
                value = msgspec.convert(value, kind)
            except msgspec.ValidationError as error:
                yield f"`{field}` has the wrong type: {error}."
                continue
            msgspec.structs.force_setattr(self, field, _fixed(value))

    @property
    def control(self) -> str:
        """The arm that every other arm is compared with: the first."""
        return next(iter(self.arms))

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of a row's columns: intercept, covariates (levels but the first), outcomes."""
        return (*self.regressors, *self.outcomes)

    @property
    def regressors(self) -> tuple[str, ...]:
        """The names of the intercept and the covariates' columns."""
        names = ["1"]
        for covariate in self.covariates:
            levels = self.levels.get(covariate)
            names += [f"{covariate}[{level}]" for level in levels[1:]] if levels else [covariate]
        return tuple(names)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the canonical form, in hexadecimal."""
        return hashlib.sha256(self.canonical()).hexdigest()

    def canonical(self) -> bytes:
        """The plan as JSON in declared field order, defaults left out."""
        return msgspec.json.encode(self)

    def assign(self, unit: str | int | bytes) -> str:
        """The arm of a unit: the same on every machine, in the plan's proportions.

        BLAKE2b of the identifier under the plan's fingerprint as key gives a uniform number, which is
        looked up in the cumulated probabilities. 17 and "17" are the same unit.

        Example:
            >>> plan = Plan(name="demo", arm="g", arms={"a": 0.2, "b": 0.8}, outcomes=["y"])
            >>> arms = [plan.assign(i) for i in range(1000)]
            >>> 150 < arms.count("a") < 250
            True
        """
        if isinstance(unit, bool) or not isinstance(unit, str | int | bytes):
            raise TypeError("a unit is named by text, a whole number or bytes")
        text = unit if isinstance(unit, bytes) else str(unit).encode()
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
        if path.suffix not in (".toml", ".json"):
            raise PlanError(f"a plan is saved as .toml or .json, not {path.suffix or 'without a suffix'}.")
        path.write_text(self.to_json() if path.suffix == ".json" else self.to_toml(), encoding="utf-8")

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
        return cls.loads(text)

    @classmethod
    def loads(cls, text: str) -> Self:
        """Read a plan from TOML or JSON text."""
        try:
            fields = msgspec.json.decode(text) if text.lstrip().startswith("{") else tomllib.loads(text)
        except (msgspec.DecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
            raise PlanError(f"the plan is neither TOML nor JSON: {error}.") from None
        known = set(cls.__struct_fields__)
        missing = [f for f in ("name", "arm", "arms", "outcomes") if f not in fields]
        faults = [f"`{field}` is not a setting of a plan." for field in fields if field not in known]
        faults += [f"`{field}` is missing." for field in missing]
        if faults:
            raise PlanError("\n".join(faults))
        return cls(**fields)


def _faults(plan: Plan) -> Iterator[str]:
    """One sentence for each thing that is wrong with a plan whose types are right."""
    if not _NAME.fullmatch(plan.name):
        yield "`name` must be 1 to 100 letters, digits, dots, dashes or underscores, and start with a letter or digit."
    yield from _arm_faults(plan)
    if not plan.outcomes:
        yield "`outcomes` must name at least one column."
    yield from _column_faults(plan)
    yield from _level_faults(plan)
    if not 0.5 <= plan.confidence < 1:
        yield "`confidence` must be at least 0.5 and below 1, for example 0.95."
    if plan.complete_units and plan.unit is None:
        yield "`complete_units` needs `unit`, the column that names the units."
    if plan.anytime_n < 1:
        yield "`anytime_n` must be at least 1."
    for estimator in plan.estimators:
        if estimator not in ESTIMATORS:
            yield f"`estimators` has {estimator!r}; the estimators are {', '.join(ESTIMATORS)}."
    for estimator in ("regression", "interacted"):
        if estimator in plan.estimators and not plan.covariates:
            yield f"the estimator {estimator!r} needs `covariates`."


def _arm_faults(plan: Plan) -> Iterator[str]:
    if not 2 <= len(plan.arms) <= MOST_ARMS:
        yield f"`arms` must have two to {MOST_ARMS} arms with their probabilities."
    if "" in plan.arms:
        yield "`arms` has an arm without a name."
    bad = [arm for arm, share in plan.arms.items() if not 0 < share < 1]
    if bad:
        yield f"the probability of {_listed(bad)} must lie between 0 and 1."
    elif plan.arms and not math.isclose(total := math.fsum(plan.arms.values()), 1, abs_tol=1e-9):
        yield f"the probabilities of `arms` add up to {total:g} and not to 1."


def _column_faults(plan: Plan) -> Iterator[str]:
    roles: dict[str, list[str]] = {}
    used = [("arm", plan.arm), ("unit", plan.unit), ("weight", plan.weight)]
    used += [("outcomes", c) for c in plan.outcomes] + [("covariates", c) for c in plan.covariates]
    for role, column in used:
        if column is not None:
            roles.setdefault(column, []).append(role)
    for column, of in roles.items():
        if column == "":
            yield f"`{of[0]}` has a column without a name."
        elif len(of) > 1:
            yield f"the column {column!r} is used more than once ({', '.join(of)}); each column has one role."
    if len(plan.columns) > MOST_COLUMNS:
        yield f"the plan has {len(plan.columns)} columns with all levels and outcomes; the most is {MOST_COLUMNS}."


def _level_faults(plan: Plan) -> Iterator[str]:
    for covariate, levels in plan.levels.items():
        if covariate not in plan.covariates:
            yield f"`levels` names {covariate!r}, which is not in `covariates`."
        if len(levels) < 2:
            yield f"`levels` of {covariate!r} must have at least two levels."
        if len(set(levels)) < len(levels):
            yield f"`levels` of {covariate!r} has a level twice."


def _listed(names: list[str]) -> str:
    return ", ".join(repr(name) for name in names)
