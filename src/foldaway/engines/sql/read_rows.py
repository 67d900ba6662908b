"""The first steps of a statement: what a query selects, as numbers and text, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import sqlglot
from sqlglot import exp, select
from sqlglot.errors import SqlglotError

from foldaway.engines.sql.dialects import Dialect, Expression, cast, number
from foldaway.engines.sql.tree import case, field, flag, literal, named, present, within
from foldaway.errors import SourceError, instead_of
from foldaway.numerics.block import LARGEST
from foldaway.plan import Plan
from foldaway.plan.outcomes import Value
from foldaway.records.faults import CLIPPED
from foldaway.records.values import BEYOND, INFINITE, NAN, NOT_POSITIVE, NULL, TOO_LARGE, WRONG_TYPE
from foldaway.tallies.answer import NAMED, TEXT, faults_of


def parsed(relation: str, dialect: str) -> exp.Query:
    """What is selected from."""

    def unread(error: SqlglotError) -> SourceError:
        said = getattr(error, "errors", None)
        detail = f" ({said[0]['description']}, line {said[0]['line']})" if said else ""
        return SourceError(f"the query cannot be read as SQL of {dialect}{detail}; nothing was folded.")

    with instead_of(SqlglotError, unread):
        found = [each for each in sqlglot.parse(relation, read=dialect) if each and not isinstance(each, exp.Semicolon)]
        if len(found) == 1 and isinstance(found[0], exp.Query):
            return found[0]
        if len(found) == 1 and isinstance(found[0], exp.Column | exp.Dot | exp.Identifier):
            return select("*").from_(sqlglot.parse_one(relation, read=dialect, into=exp.Table))
    raise SourceError("give the name of a table, or one query that begins with SELECT or WITH; nothing was folded.")


_MORE_THAN_READING = (
    *(exp.Join, exp.Group, exp.Having, exp.Distinct, exp.Limit, exp.Offset, exp.With, exp.Window, exp.Subquery),
    *(exp.Lateral, exp.Unnest, exp.TableSample, exp.Rand, exp.Anonymous),
)


def from_one_table(rows: exp.Query) -> bool:
    """Whether a query reads one table from end to end, so that asking again costs little and says the same."""
    return isinstance(rows, exp.Select) and len([*rows.find_all(exp.Table)]) == 1 and not rows.find(*_MORE_THAN_READING)


class ReadRows:
    """The records that a query selects, in steps of which each is a common table expression of its own.

    Attributes:
        plan: The plan.
        dialect: The dialect.
        rows: The query.
        texts: The columns that are read as text.
        numbers: Those that are read as numbers.
        lackable: Those that a record may lack.
    """

    def __init__(self, plan: Plan, dialect: Dialect, rows: exp.Query, texts: list[str]) -> None:
        self.plan, self.dialect, self.rows, self.texts = plan, dialect, rows, texts
        numeric = [*plan.covariates, *plan.measured, *([] if plan.weight is None else [plan.weight])]
        self.numbers = [name for name in dict.fromkeys(numeric) if not plan.levels_of(name)]
        self.lackable = plan.lackable | plan.shown_alone

    # A column under the names that the steps give it.

    def text(self, name: str) -> Expression:
        """What a column says."""
        return field(f"fa_t{self.texts.index(name)}")

    def code(self, name: str) -> Expression:
        """An arm's, level's or stratum's place in the plan; of levels that the plan does not list, the name."""
        return field(f"fa_c{self.texts.index(name)}")

    def number(self, name: str) -> Expression:
        """A number as it came."""
        return field(f"fa_x{self.numbers.index(name)}")

    @cached_property
    def faults(self) -> dict[str, list[tuple[int, str]]]:
        """By column, the rules and their places in the lines of faulty records."""
        rules: dict[str, list[tuple[int, str]]] = {}
        for place, (name, rule) in enumerate(faults_of(self.plan)):
            if name in self.texts or name in self.numbers:
                rules.setdefault(name, []).append((place, rule))
        return rules

    def steps(self) -> dict[str, exp.Query]:
        """The steps down to which records are faulty, by name."""
        return {
            "foldaway_records": self.rows,
            "foldaway_read": self.read(),
            "foldaway_checked": self.checked(),
            "foldaway_judged": self.judged(),
        }

    def read(self) -> exp.Select:
        """The plan's columns as text and numbers, and whether they were neither."""
        dialect, chosen = self.dialect, []
        for place, name in enumerate(self.texts):
            given = field(name, "r")
            chosen.append(named(dialect.exact(cast(given, "text")), f"fa_t{place}"))
            if dialect.no_name is not None:
                chosen.append(named(flag(dialect.no_name(given)), f"fa_u{place}"))
        for place, name in enumerate(self.numbers):
            given = field(name, "r")
            chosen.append(named(cast(given, "double"), f"fa_x{place}"))
            if dialect.no_number is not None:
                chosen.append(named(flag(dialect.no_number(given)), f"fa_o{place}"))
        return select(*chosen).from_("foldaway_records AS r")

    def checked(self) -> exp.Select:
        """Codes, numbers within their bounds, and for each column which rule a record breaks there: -1 is none."""
        chosen = []
        for place, name in enumerate(self.texts):
            if (names := self.names_of(name)) is not None:
                found = [(self.text(name).eq(literal(each)), code) for each, code in names.items()]
                chosen.append(named(case(*found, other=-1), f"fa_c{place}"))
            elif name in self.plan.segments:
                chosen.append(named(exp.Concat(expressions=[literal(NAMED), self.text(name)]), f"fa_c{place}"))
        for place, name in enumerate(self.numbers):
            value = self.number(name)
            if name in self.lackable and self.dialect.nan is not None:
                value = case((exp.not_(self.dialect.nan(value)), value))
            if name in self.plan.unlisted_characteristics and self.dialect.no_number is not None:
                value = case((field(f"fa_o{place}").neq(1), value))  # text among numbers says nothing there
            if name in self.plan.bounds:
                value = within(value, *self.plan.bounds[name])
            chosen.append(named(value, f"fa_v{place}"))
        for place, (name, rules) in enumerate(self.faults.items()):
            broken = [(self.breaks(name, rule), at) for at, rule in rules]
            chosen.append(
                named(case(*((test, at) for test, at in broken if test is not None), other=-1), f"fa_q{place}")
            )
        return select(*chosen).from_("foldaway_read")

    def names_of(self, column: str) -> dict[str, int] | None:
        """What a column says, and the codes that this stands for; None where the plan does not list that."""
        if column == self.plan.arm:
            said = enumerate(self.plan.arms.said.values())
            return {value: code for code, values in said for value in values}
        levels = self.plan.levels_of(column)
        return None if levels is None else {level: code for code, level in enumerate(levels)}

    def breaks(self, name: str, rule: str) -> Expression | None:
        """Whether a record breaks a rule, if none before it; None where the database has no such values."""
        if name in self.texts:
            tests: dict[str, Callable[[Expression], Expression | None]] = {
                NULL: lambda text: exp.Is(this=text, expression=exp.Null()),
                WRONG_TYPE: lambda _: self.typed("u", self.texts, name, self.dialect.no_name),
            }
            known = [self.text(name).eq(literal(each)) for each in self.names_of(name) or ()]
            return tests[rule](self.text(name)) if rule in tests else exp.not_(exp.or_(*known))
        lower, upper = self.plan.bounds.get(name, (0.0, 0.0))
        largest = number(1.7976931348623157e308)
        of_numbers: dict[str, Callable[[Expression], Expression | None]] = {
            NULL: lambda value: exp.Is(this=value, expression=exp.Null()),
            NAN: lambda value: None if self.dialect.nan is None else self.dialect.nan(value),
            INFINITE: lambda value: self.sound(name, exp.Abs(this=value) > largest),
            TOO_LARGE: lambda value: self.sound(name, exp.Abs(this=value) > number(LARGEST)),
            WRONG_TYPE: lambda _: self.typed("o", self.numbers, name, self.dialect.no_number),
            TEXT: lambda _: self.typed("o", self.numbers, name, self.dialect.no_number),
            NOT_POSITIVE: lambda value: value <= number(1 / LARGEST),
            BEYOND: lambda value: self.sound(name, exp.or_(value < number(lower), value > number(upper))),
            CLIPPED: lambda value: self.sound(name, exp.or_(value < number(lower), value > number(upper))),
        }
        domain = next((each for each in self.plan.domains.get(name, ()) if each.rule == rule), None)
        if domain is None:
            return of_numbers[rule](self.number(name))
        values = [self.number(name).eq(number(each)) for each in domain.only]
        return self.sound(name, exp.not_(exp.or_(*values)) if values else self.number(name) < number(domain.least))

    def sound(self, name: str, test: Expression) -> Expression:
        """The test, but for NaN where that is no fault: some databases have it larger than any number."""
        if name not in self.lackable or self.dialect.nan is None:
            return test
        return exp.and_(exp.not_(self.dialect.nan(self.number(name))), test)

    def typed(self, letter: str, names: list[str], name: str, test: Any) -> Expression | None:
        """Whether a value is of a wrong type; None where the cast itself would fail."""
        return None if test is None else field(f"fa_{letter}{names.index(name)}").eq(1)

    def judged(self) -> exp.Select:
        """And which records are faulty."""
        tests = []
        for place, rules in enumerate(self.faults.values()):
            mild = [at for at, rule in rules if rule in (CLIPPED, TEXT)]
            code = field(f"fa_q{place}")
            tests.append(exp.and_(code >= 0, *(code.neq(at) for at in mild)))
        judged = select("*", named(flag(exp.or_(*tests)), "fa_bad")).from_("foldaway_checked")
        # Or PostgreSQL puts the step into those that read it, takes conditions on it for rare, and sorts all records.
        return judged.offset(exp.Literal.string("0")) if self.dialect.repeats else judged

    def broken(self) -> Expression:
        """Whether a record breaks any rule, also one that does not make it faulty."""
        return exp.or_(*(field(f"fa_q{place}") >= 0 for place in range(len(self.faults))))

    def counts(self) -> list[Expression]:
        """How many records break each rule of `faults_of`, in its order."""
        counts: dict[int, Expression] = {}
        for place, rules in enumerate(self.faults.values()):
            for at, rule in rules:
                test: Expression = field(f"fa_q{place}").eq(at)
                if rule == CLIPPED:
                    test = exp.and_(test, field("fa_bad").eq(0))
                counts[at] = exp.Sum(this=case((test, number(1)), other=number(0)))
        return [counts.get(at, number(0)) for at in range(len(faults_of(self.plan)))]

    def own(self, name: str) -> Expression:
        """A number within its bounds."""
        return field(f"fa_v{self.numbers.index(name)}")

    def value(self, value: Value) -> Expression:
        """A value of a record; null where a column that it needs is missing."""
        made = self.own(value.column)
        if value.cap is not None:
            made = within(made, *value.cap)
        if value.test is not None:
            limit = number(value.threshold)
            passes = {"above": made > limit, "below": made < limit, "equals": made.eq(limit)}[value.test]
            made = case((passes, number(1)), (present(made), number(0)))
        beside = [present(self.own(name)) for name in value.beside]
        return case((exp.and_(*beside), made)) if beside else made

    def predictors(self) -> list[Expression]:
        """The columns of covariates: numbers, and an indicator for each level but the first."""
        columns: list[Expression] = []
        for name in self.plan.covariates:
            if levels := self.plan.levels_of(name):
                columns += [
                    case((self.code(name).eq(code), number(1)), other=number(0)) for code in range(1, len(levels))
                ]
            else:
                columns.append(self.own(name))
        return columns
