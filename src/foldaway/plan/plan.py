"""The plan: the whole analysis, fixed before the first record."""

from __future__ import annotations

import hashlib
import html
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import msgspec

from foldaway.errors import PlanError, instead_of
from foldaway.lending import lent
from foldaway.plan.allocation import Allocation
from foldaway.plan.analysis import Analysis
from foldaway.plan.arms import public_arm
from foldaway.plan.columns import Columns
from foldaway.plan.parts import Strata
from foldaway.plan.rules import faults_of
from foldaway.plan.written import Written


class Plan(Analysis, kw_only=True, eq=False):  # type: ignore[misc]  # frozen, as what it extends
    """The analysis of a trial, fixed before the first record arrives.

    Example:
        >>> plan = Plan(name="demo", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
        >>> plan.control
        'a'
        >>> plan.assign("user-17") in plan.arms
        True
        >>> Plan.loads(plan.to_toml()) == plan
        True
    """

    def complete(self) -> None:
        """Write out what stands for each arm, and strata whose levels alone are listed; write down levels once.

        Such strata have the arms' probabilities in each. The strata's column is no covariate besides: arms are compared
        within strata already.
        """
        self.put("arms", Allocation(self.arms))
        covariates, segments, strata = Columns(self.covariates), Columns(self.segments), self.strata
        baseline = Columns(self.baseline)
        of_strata = {} if strata is None else strata.listed
        said = [*of_strata.items(), *covariates.levels.items(), *segments.levels.items(), *baseline.levels.items()]
        levels = dict(said)
        if unlike := next((column for column, listed in said if listed != levels[column]), None):
            raise PlanError(f"the levels of {unlike!r} are listed in two ways: list them once.")
        if strata is not None:
            covariates = covariates.without(strata.column)
            if found := levels.pop(strata.column, ()):
                shares = strata.probabilities or {stratum: dict(self.arms) for stratum in found}
                self.put("strata", Strata(strata.column, shares))
        self.put("covariates", covariates.listing(levels))
        self.put("segments", segments.listing({name: own for name, own in levels.items() if name not in covariates}))
        elsewhere = {*covariates, *segments}
        self.put("baseline", baseline.listing({name: own for name, own in levels.items() if name not in elsewhere}))

    def faults(self) -> Iterator[str]:
        """What is wrong with the plan's settings taken together."""
        return faults_of(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.canonical() == other.canonical()

    def __hash__(self) -> int:
        return hash(self.canonical())

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the canonical form, in hexadecimal."""
        return hashlib.sha256(self.canonical()).hexdigest()

    @property
    def design(self) -> str:
        """SHA-256 of what units are randomised by (name, arms, unit), in hexadecimal: the same whatever is analysed."""
        settings = [self.name, self.arm, list(self.arms.items()), self.unit]
        return hashlib.sha256(msgspec.json.encode(settings)).hexdigest()

    def canonical(self) -> bytes:
        """The plan as JSON in UTF-8 without blanks: settings in declared order, those at their default left out.

        Arms keep their order, since the first is the control. A mean, covariate or
        segment of which only the column is said is that column's name. Levels stand at the covariate, if the column is
        one, or else at the segment, or at the characteristic.
        """
        return msgspec.json.encode(self.settings())

    def settings(self) -> dict[str, Any]:
        """The settings as they are written into a file, those at their default left out."""
        settings: dict[str, Any] = msgspec.to_builtins(self)
        written = {name: getattr(self, name).written() for name in ("arms", "covariates", "segments", "baseline")}
        written["outcomes"] = [outcome.written() for outcome in self.outcomes]
        return settings | {name: each for name, each in written.items() if name in settings}

    def assign(self, unit: str | int | bytes, stratum: str | None = None) -> str:
        """The public arm of a unit, for a client that must compute it alone: anybody with plan and identifier can, too.

        Where arms must not be foreseen, draw them with `Trial.assign`, under the trial's secret key. Covariates,
        coefficients and other settings may change and re-randomise nobody. 17, "17" and b"17" are the same unit.
        `docs/arms.md` says how to compute it in any language.

        Example:
            >>> plan = Plan(name="demo", arm="g", arms={"a": 0.2, "b": 0.8}, outcomes=["y"])
            >>> arms = [plan.assign(i) for i in range(1000)]
            >>> 150 < arms.count("a") < 250
            True
        """
        return public_arm(self.shares_of(stratum), self.design, unit)

    def shares_of(self, stratum: str | None = None) -> Mapping[str, float]:
        """The arms' probabilities; in a plan with strata those of this one.

        Raises:
            PlanError: The plan has strata, and this is none of them.
        """
        if self.strata is None:
            return self.arms
        if stratum is None or stratum not in self.strata.probabilities:
            raise PlanError(f"the plan has strata: name one of them, {', '.join(self.strata.probabilities)}.")
        return {arm: self.strata.probabilities[stratum][arm] for arm in self.arms}

    def calibrated(self, records: Any, query: str | None = None, *, parameters: Any = None) -> Plan:
        """This plan with coefficients from earlier records, which need no arm and no unit; nobody is re-randomised.

        Args:
            records: At least 2,000 records from before the trial: a table, a dict of columns, or a list of dicts. Or a
                connection, as `fold_query` takes it.
            query: What to select through the connection, or the name of a table. A database that can sums the
                products of its columns itself, and no row leaves it.
            parameters: Values for the query's placeholders.
        """
        calibrated: Plan
        if query is not None:
            calibrated = lent("calibrated_by_query")(self, records, query, parameters)
        else:
            calibrated = lent("calibrated")(self, records)
        return calibrated

    def sql(self, relation: str, *, dialect: str) -> str:
        """The statement that sums records by arm and group where they are: `Trial.fold_sums` takes its answer.

        It has a placeholder for the group key; `foldaway sql PLAN --group-key` prints what it stands for.

        Args:
            relation: A table's name, or a query that gives the plan's columns.
            dialect: duckdb, postgres, sqlite, clickhouse, mysql (MariaDB), spark, databricks, bigquery, snowflake,
                redshift or trino. SQLite needs a function `foldaway_sha256` that gives hexadecimal digits.

        Raises:
            PlanError: The plan lacks ``hash = "sha256"``, keeps moments, or has a release or devices.
            SourceError: The query cannot be read, or is more than one.

        Example:
            >>> plan = Plan(name="demo", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], hash="sha256")
            >>> "GROUP BY" in plan.sql("visits", dialect="duckdb")
            True
        """
        missing = PlanError("the statement is written by sqlglot, which is missing: pip install 'foldaway[sql]'.")
        with instead_of(ModuleNotFoundError, missing):
            made: str = lent("statement")(self, relation, dialect)
        return made

    def to_toml(self) -> str:
        """The plan as TOML: columns in a list of names, or each in a table if one needs it."""
        import tomli_w

        settings = self.settings()
        for name in ("outcomes", "covariates", "segments", "baseline"):
            columns = settings.get(name, [])
            if not all(isinstance(each, str) for each in columns):
                settings[name] = [{"column": each} if isinstance(each, str) else each for each in columns]
        return tomli_w.dumps(settings)

    def to_json(self) -> str:
        """The plan as JSON."""
        return msgspec.json.format(self.canonical(), indent=2).decode()

    def _repr_html_(self) -> str:
        """What a notebook shows: the plan as it would be written into a file."""
        return f"<pre>{html.escape(self.to_toml())}</pre>"

    def save(self, path: str | Path) -> None:
        """Write the plan to a ``.toml`` or ``.json`` file."""
        path = Path(path)
        kind = path.suffix.lower()
        if kind not in (".toml", ".json"):
            raise PlanError(f"a plan's file name must end in .toml or .json, not {kind or 'lack a suffix'}.")
        path.write_text(self.to_json() if kind == ".json" else self.to_toml(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path, **others: Any) -> Self:
        """Read a plan from a ``.toml`` or ``.json`` file; other settings take the place of those in it."""
        path = Path(path)
        with (
            instead_of(OSError, lambda error: PlanError(f"cannot read the plan {path}: {error.strerror}.")),
            instead_of(UnicodeDecodeError, PlanError(f"cannot read the plan {path}: it is not UTF-8 text.")),
        ):
            text = path.read_text(encoding="utf-8")
        with instead_of(PlanError, lambda error: PlanError(f"{path} is not a valid plan:\n{error}")):
            return cls.loads(text, **others)

    @classmethod
    def loads(cls, text: str, **others: Any) -> Self:
        """Read a plan from TOML or JSON text; other settings take the place of those in it.

        Example:
            >>> Plan.loads("name = 'demo'")
            Traceback (most recent call last):
            foldaway.errors.PlanError: `arm` is missing.
            `arms` is missing.
            `outcomes` is missing.
        """
        text = text.removeprefix("\ufeff")  # some editors begin a file with this mark
        try:
            is_json = text.lstrip().startswith("{")
            settings = json.loads(text, object_pairs_hook=_unrepeated) if is_json else tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            if re.search(r"Cannot overwrite|twice", str(error)):
                place = re.search(r" \(at .*\)", str(error))
                raise PlanError(f"a key is given twice in the plan{place[0] if place else ''}: keep one.") from None
            raise PlanError(f"the plan is neither TOML nor JSON: {error}.") from None
        return cls.of({**settings, **others})


if Plan.__doc__ and Written.__doc__:  # for help(Plan): settings are documented where they are declared
    Plan.__doc__ += Written.__doc__.partition("\n")[2]


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object of which no key comes twice; the parser would take the last in silence."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key occurs twice in one object")
    return dict(pairs)
