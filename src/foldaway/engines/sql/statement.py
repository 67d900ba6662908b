"""A plan's sums as one statement: the rows stay where they are, and what comes back are lines by arm and group.

The statement goes down in steps, each a common table expression of its own: the user's query, its columns as numbers
and text, codes and what is wrong with them, the good records with their values, what sums are about, so that squares
lose no digits, and sums by cell. `tallies/answer.py` says how the lines are laid out. The statement is built as a tree,
and sqlglot writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, reduce
from hashlib import sha256
from typing import Any

import sqlglot
from sqlglot import exp, select
from sqlglot.errors import SqlglotError

from foldaway.engines.sql.dialects import DIALECTS, Dialect, Expression, called, cast, number
from foldaway.errors import PlanError, SourceError, did_you_mean, instead_of
from foldaway.numerics.block import LARGEST
from foldaway.plan import Plan
from foldaway.plan.outcomes import Binning, Bins, Value
from foldaway.plan.outcomes.binning import NUDGE
from foldaway.plan.vocabulary import MOMENTS, SIPHASH
from foldaway.records.faults import CLIPPED
from foldaway.records.values import BEYOND, INFINITE, NAN, NOT_POSITIVE, NULL, TOO_LARGE, WRONG_TYPE
from foldaway.tallies.answer import (
    BESIDE,
    CENTERS,
    FAULTS,
    HEAD,
    KEYS,
    MARK,
    NAMED,
    UNITS,
    Part,
    by_arm,
    by_group,
    faults_of,
    numbers_in,
    parts_of,
)
from foldaway.tallies.predictor import predictor_of
from foldaway.tallies.sums import SumsShape

_DIGITS = "0123456789abcdef"
_ZERO = exp.Literal.number(0)
_DIGEST_HERE = "foldaway_statement_digest"


def not_in_sql(plan: Plan) -> str:
    """Why records of this plan cannot be summed where they are; empty if they can."""
    if plan.federated is not None:
        return "its records are those of devices and sites"
    if plan.keeps == MOMENTS:
        return "it keeps moments, which no database sums"
    if plan.release is not None:
        return "a `release` limits the records of each unit, which are counted as they come"
    if plan.hash == SIPHASH:
        return 'databases lack its `hash`; with hash = "sha256" its records could stay where they are'
    return ""


def statement(plan: Plan, relation: str, dialect: str, secret: str = "") -> str:
    """The statement that sums what a query or table gives.

    Args:
        plan: The plan.
        relation: A table's name, or a query.
        dialect: One of `DIALECTS`.
        secret: What stands for the group key; by default a placeholder by its name.

    Raises:
        PlanError: The plan's records cannot be summed where they are, or there is no such dialect.
        SourceError: The query cannot be read, or is more than one.
    """
    if why := not_in_sql(plan):
        raise PlanError(f"records of this plan cannot be summed in a database: {why}.")
    if dialect not in DIALECTS:
        hint = did_you_mean(dialect, DIALECTS).removesuffix(".")
        raise PlanError(f"there is no dialect {dialect!r}{hint}. The dialects are {', '.join(DIALECTS)}.")
    built = _Statement(plan, DIALECTS[dialect], _parsed(relation, dialect), secret)
    made = built.whole().sql(dialect, pretty=True, comments=False)
    return made.replace(_DIGEST_HERE, sha256(made.encode()).hexdigest()[:32])  # it says of itself which it is


def _parsed(relation: str, dialect: str) -> exp.Query:
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


def _column(name: str, table: str | None = None) -> exp.Column:
    return exp.column(name, table=table, quoted=True)


def _as(value: Expression, name: str) -> Expression:
    return exp.alias_(value, name, quoted=True)


def _text(value: str) -> Expression:
    return exp.Literal.string(value)


def _case(*branches: tuple[Expression, Expression | int], other: Expression | int | None = None) -> Expression:
    """The value of the first condition that holds."""
    if not branches:
        return exp.convert(other)
    case = exp.Case()
    for condition, value in branches:
        case = case.when(condition.copy(), exp.convert(value, copy=True))
    return case if other is None else case.else_(exp.convert(other, copy=True))


def _flag(condition: Expression) -> Expression:
    return _case((condition, 1), other=0)


def _product(*factors: Expression | None) -> Expression:
    return reduce(lambda one, two: one * two, [factor for factor in factors if factor is not None])


def _sum(terms: Iterable[Expression]) -> Expression:
    return reduce(lambda one, two: one + two, terms)


def _present(value: Expression) -> Expression:
    return exp.not_(exp.Is(this=value.copy(), expression=exp.Null()))


def _within(value: Expression, lower: float, upper: float) -> Expression:
    return _case((value < number(lower), number(lower)), (value > number(upper), number(upper)), other=value)


class _Statement:
    """The statement of a plan in a dialect."""

    def __init__(self, plan: Plan, dialect: Dialect, rows: exp.Query, secret: str) -> None:
        self.plan, self.dialect, self.rows = plan, dialect, rows
        self.secret = exp.Var(this=secret or dialect.secret)
        named = [plan.arm, *filter(plan.levels_of, plan.covariates), *plan.segments, plan.unit, plan.cluster]
        named.append(None if plan.strata is None else plan.strata.column)
        self.texts = list(dict.fromkeys(name for name in named if name is not None))
        numeric = [*plan.covariates, *plan.measured, *([] if plan.weight is None else [plan.weight])]
        self.numbers = [name for name in dict.fromkeys(numeric) if not plan.levels_of(name)]
        self.parts = list(parts_of(plan))
        self.shape = next(part.shape for part in self.parts if part.shape is not None)

    # A column under the names that the steps give it.

    def text(self, name: str) -> Expression:
        return _column(f"fa_t{self.texts.index(name)}")

    def code(self, name: str) -> Expression:
        """An arm's, level's or stratum's place in the plan; of levels that the plan does not list, the name."""
        return _column(f"fa_c{self.texts.index(name)}")

    def number(self, name: str) -> Expression:
        return _column(f"fa_x{self.numbers.index(name)}")

    @cached_property
    def faults(self) -> dict[str, list[tuple[int, str]]]:
        """By column, the rules and their places in the lines of faulty records."""
        rules: dict[str, list[tuple[int, str]]] = {}
        for place, (name, rule) in enumerate(faults_of(self.plan)):
            rules.setdefault(name, []).append((place, rule))
        return rules

    def whole(self) -> exp.Select:
        """The statement."""
        steps: dict[str, exp.Query] = {
            "foldaway_secret": select(_as(cast(self.secret, "text"), "fa_key")),
            "foldaway_records": self.rows,
            "foldaway_read": self.read(),
            "foldaway_checked": self.checked(),
            "foldaway_judged": self.judged(),
            "foldaway_good": self.good(),
            "foldaway_centers": self.centers(),
            "foldaway_centered": self.centered(),
        }
        steps |= {f"foldaway_cells_{place}": self.cells(part) for place, part in enumerate(self.parts)}
        steps["foldaway_lines"] = self.lines()
        values = [_column(f"s{place}") for place in range(numbers_in(self.plan))]
        total = _sum([_column("n"), *values])
        lines = exp.Window(this=exp.Count(this=exp.Star()))
        made = select(*map(_column, KEYS), *values, _as(total, BESIDE[0]), _as(lines, BESIDE[1]))
        made = made.from_("foldaway_lines")
        for name, step in steps.items():
            made = made.with_(name, as_=step, copy=False)
        return made

    def read(self) -> exp.Select:
        """The plan's columns as text and numbers, and whether they were neither."""
        dialect, chosen = self.dialect, []
        for place, name in enumerate(self.texts):
            given = _column(name, "r")
            chosen.append(_as(dialect.exact(cast(given, "text")), f"fa_t{place}"))
            if dialect.no_name is not None:
                chosen.append(_as(_flag(dialect.no_name(given)), f"fa_u{place}"))
        for place, name in enumerate(self.numbers):
            given = _column(name, "r")
            chosen.append(_as(cast(given, "double"), f"fa_x{place}"))
            if dialect.no_number is not None:
                chosen.append(_as(_flag(dialect.no_number(given)), f"fa_o{place}"))
        return select(*chosen).from_("foldaway_records AS r")

    def checked(self) -> exp.Select:
        """Codes, numbers within their bounds, and for each column which rule a record breaks there: -1 is none."""
        chosen = []
        for place, name in enumerate(self.texts):
            if (names := self.names_of(name)) is not None:
                found = [(self.text(name).eq(_text(each)), code) for code, each in enumerate(names)]
                chosen.append(_as(_case(*found, other=-1), f"fa_c{place}"))
            elif name in self.plan.segments:
                chosen.append(_as(exp.Concat(expressions=[_text(NAMED), self.text(name)]), f"fa_c{place}"))
        for place, name in enumerate(self.numbers):
            value = self.number(name)
            if name in self.plan.lackable and self.dialect.nan is not None:
                value = _case((exp.not_(self.dialect.nan(value)), value))
            if name in self.plan.bounds:
                value = _within(value, *self.plan.bounds[name])
            chosen.append(_as(value, f"fa_v{place}"))
        for place, (name, rules) in enumerate(self.faults.items()):
            broken = [(self.breaks(name, rule), at) for at, rule in rules]
            chosen.append(
                _as(_case(*((test, at) for test, at in broken if test is not None), other=-1), f"fa_q{place}")
            )
        if self.plan.unit is not None and not self.plan.one_each:
            chosen.append(_as(self.text(self.plan.unit), "fa_unit"))
        elif self.plan.cluster is not None and not self.plan.one_each:
            chosen.append(_as(self.text(self.plan.cluster), "fa_unit"))
        if self.plan.grouped and self.plan.clustering is not None:
            chosen.append(_as(self.keyed(self.text(self.plan.clustering)), "fa_hash"))
        return select(*chosen).from_("foldaway_read")

    def names_of(self, column: str) -> Sequence[str] | None:
        """What a column says for each of its codes; None where the plan does not list that."""
        plan = self.plan
        return [plan.arm_values.get(arm, arm) for arm in plan.arms] if column == plan.arm else plan.levels_of(column)

    def breaks(self, name: str, rule: str) -> Expression | None:
        """Whether a record breaks a rule, if none before it; None where the database has no such values."""
        if name in self.texts:
            tests: dict[str, Callable[[Expression], Expression | None]] = {
                NULL: lambda text: exp.Is(this=text, expression=exp.Null()),
                WRONG_TYPE: lambda _: self.typed("u", self.texts, name, self.dialect.no_name),
            }
            known = [self.text(name).eq(_text(each)) for each in self.names_of(name) or ()]
            return tests[rule](self.text(name)) if rule in tests else exp.not_(exp.or_(*known))
        lower, upper = self.plan.bounds.get(name, (0.0, 0.0))
        largest = number(1.7976931348623157e308)
        of_numbers: dict[str, Callable[[Expression], Expression | None]] = {
            NULL: lambda value: exp.Is(this=value, expression=exp.Null()),
            NAN: lambda value: None if self.dialect.nan is None else self.dialect.nan(value),
            INFINITE: lambda value: self.sound(name, exp.Abs(this=value) > largest),
            TOO_LARGE: lambda value: self.sound(name, exp.Abs(this=value) > number(LARGEST)),
            WRONG_TYPE: lambda _: self.typed("o", self.numbers, name, self.dialect.no_number),
            NOT_POSITIVE: lambda value: value <= number(1 / LARGEST),
            BEYOND: lambda value: self.sound(name, exp.or_(value < number(lower), value > number(upper))),
            CLIPPED: lambda value: self.sound(name, exp.or_(value < number(lower), value > number(upper))),
        }
        return of_numbers[rule](self.number(name))

    def sound(self, name: str, test: Expression) -> Expression:
        """The test, but for NaN where that is no fault: some databases have it larger than any number."""
        if name not in self.plan.lackable or self.dialect.nan is None:
            return test
        return exp.and_(exp.not_(self.dialect.nan(self.number(name))), test)

    def typed(self, letter: str, names: list[str], name: str, test: Any) -> Expression | None:
        return None if test is None else _column(f"fa_{letter}{names.index(name)}").eq(1)

    def keyed(self, text: Expression) -> Expression:
        """SHA-256 of a text under the group key."""
        key = select(_column("fa_key")).from_("foldaway_secret").subquery()
        return self.dialect.digest(exp.Concat(expressions=[key, text.copy()]))

    def judged(self) -> exp.Select:
        """And which records are faulty."""
        tests = []
        for place, rules in enumerate(self.faults.values()):
            mild = [at for at, rule in rules if rule == CLIPPED]
            code = _column(f"fa_q{place}")
            tests.append(exp.and_(code >= 0, *(code.neq(at) for at in mild)))
        return select("*", _as(_flag(exp.or_(*tests)), "fa_bad")).from_("foldaway_checked")

    def good(self) -> exp.Select:
        """The good records: codes, values, weights, bins."""
        plan = self.plan
        chosen = [_as(self.code(plan.arm), "fa_arm")]
        chosen += [_as(self.code(name), f"fa_l{place}") for place, name in enumerate(plan.segments)]
        if plan.strata is not None:
            chosen.append(_as(self.code(plan.strata.column), "fa_stratum"))
        if plan.grouped:
            digits = [
                exp.StrPosition(this=_text(_DIGITS), substr=called("SUBSTR", _column("fa_hash"), place, 1)) - 1
                for place in (1, 2, 3)
            ]
            first, second, third = (exp.paren(digit) for digit in digits)
            chosen.append(_as(first * 256 + second * 16 + third, "fa_group"))
        if not plan.one_each:
            chosen.append(_column("fa_unit"))
        own = None if plan.weight is None else _column(f"fa_v{self.numbers.index(plan.weight)}")
        if own is not None:
            chosen.append(_as(own, "fa_own"))
        if plan.weighted:
            chosen.append(_as(_product(own, self.inverse()), "fa_weight"))
        values = [self.value(value) for value in plan.values]
        chosen += [_as(value, f"fa_y{place}") for place, value in enumerate((*values, *self.adjusted(values)))]
        chosen += [_as(self.bin(bins), f"fa_b{place}") for place, bins in enumerate(plan.bins)]
        return select(*chosen).from_("foldaway_judged").where(_column("fa_bad").eq(0))

    def inverse(self) -> Expression | None:
        """One over the probability of a record's arm in its stratum."""
        strata = self.plan.strata
        if strata is None:
            return None
        at = self.code(strata.column) * len(self.plan.arms) + self.code(self.plan.arm)
        rates = [1 / shares[arm] for shares in strata.probabilities.values() for arm in self.plan.arms]
        return _case(*((at.eq(code), number(rate)) for code, rate in enumerate(rates)))

    def own(self, name: str) -> Expression:
        return _column(f"fa_v{self.numbers.index(name)}")

    def value(self, value: Value) -> Expression:
        """A value of a record; null where a column that it needs is missing."""
        made = self.own(value.column)
        if value.cap is not None:
            made = _within(made, *value.cap)
        if value.test is not None:
            limit = number(value.threshold)
            passes = {"above": made > limit, "below": made < limit, "equals": made.eq(limit)}[value.test]
            made = _case((passes, number(1)), (_present(made), number(0)))
        beside = [_present(self.own(name)) for name in value.beside]
        return _case((exp.and_(*beside), made)) if beside else made

    def adjusted(self, values: Sequence[Expression]) -> list[Expression]:
        """The values less what covariates predict, if the plan has coefficients."""
        predictor = predictor_of(self.plan)
        if predictor is None:
            return []
        columns: list[Expression] = []
        for name in self.plan.covariates:
            if levels := self.plan.levels_of(name):
                columns += [
                    _case((self.code(name).eq(code), number(1)), other=number(0)) for code in range(1, len(levels))
                ]
            else:
                columns.append(self.own(name))
        about = [exp.paren(x - number(c)) for x, c in zip(columns, predictor.center.tolist(), strict=True)]
        slopes = predictor.slopes.tolist()
        predicted = [_sum(number(b) * x for b, x in zip(row, about, strict=True)) for row in slopes]
        return [value - exp.paren(each) for value, each in zip(values, predicted, strict=True)]

    def bin(self, bins: Binning) -> Expression:
        """The bin of a record: see `Bins.of`."""
        assert isinstance(bins, Bins)
        value, scale, last = self.own(bins.column), bins.scale, bins.within
        if bins.logarithmic:
            place = exp.Ln(this=value / number(bins.lower)) * number(scale)
        else:
            place = exp.paren(value - number(bins.lower)) * number(scale)
        within = cast(exp.Floor(this=exp.paren(place + number(NUDGE))), "bigint") + 1
        return _case(
            (value < number(bins.lower), 0),
            (value > number(bins.upper), last + 1),
            (value >= number(bins.upper), last),
            (_present(value), _case((within > last, last), other=within)),
        )

    def centers(self) -> exp.Select:
        """What sums are about: the arm's mean of each value."""
        means = [
            _as(exp.Coalesce(this=exp.Avg(this=_column(f"fa_y{v}")), expressions=[number(0)]), f"fa_m{v}")
            for v in range(self.shape.columns)
        ]
        return select(_as(_column("fa_arm"), "fa_of"), *means).from_("foldaway_good").group_by(_column("fa_arm"))

    def centered(self) -> exp.Select:
        """The good records with their values about the means."""
        away = [_as(_column(f"fa_y{v}") - _column(f"fa_m{v}"), f"fa_d{v}") for v in range(self.shape.columns)]
        matched = _column("fa_of").eq(_column("fa_arm"))
        return select("*", *away).from_("foldaway_good").join("foldaway_centers", on=matched)

    def cells(self, part: Part) -> exp.Select:
        """Sums by cell of a part."""
        keys: dict[str, Expression] = {"arm": _column("fa_arm")}
        if part.segment >= 0:
            keys["level"] = _column(f"fa_l{part.segment}")
        if part.kind != "sums":
            keys["place"] = _column("fa_stratum" if part.kind == "strata" else f"fa_b{part.number}")
        if self.plan.grouped:
            keys["grp"] = _column("fa_group") % part.groups
        weight = _column("fa_weight") if self.plan.weighted else None
        if part.shape is None:
            sums: list[Expression] = (
                [] if weight is None else [exp.Sum(this=weight), exp.Sum(this=_product(weight, weight))]
            )
        else:
            if part.kind == "strata":
                weight = None if self.plan.weight is None else _column("fa_own")
            sums = [
                self.summed(part.shape, weight, name, index)
                for name, index in (*by_group(part.shape), *by_arm(part.shape))
            ]
        chosen = [*(_as(key, f"fa_{name}_key") for name, key in keys.items())]
        chosen.append(_as(exp.Count(this=exp.Star()), "fa_n"))
        chosen += [_as(each, f"fa_s{place}") for place, each in enumerate(sums)]
        made = select(*chosen).from_("foldaway_centered").group_by(*(key.copy() for key in keys.values()))
        return made if part.shape is not None else made.where(_present(keys["place"]))

    def summed(self, shape: SumsShape, w: Expression | None, name: str, index: tuple[int, ...]) -> Expression:
        """A sum that tallies keep, of the records of a cell."""
        d = [_column(f"fa_d{v}") for v in range(shape.columns)]
        place = index[0]
        here = d[place % shape.outcomes]
        w2 = None if w is None else w * w
        if name == "present":
            return cast(exp.Count(this=here), "double")
        if name == "weight":
            everyone = not shape.missing or place == shape.outcomes
            return exp.Sum(this=w if everyone or w is None else _case((_present(here), w)))
        if name == "joint":
            one, two = (shape.block(outcome) for outcome in shape.pairs[place])
            return exp.Sum(this=_product(w2, d[one[index[1]]], d[two[index[2]]]))
        terms: Mapping[str, Any] = {
            "total": lambda: _product(w, d[place]),
            "mass": lambda: _case((_present(here), _product(w, w))),
            "first": lambda: _product(w2, d[place]),
            "square": lambda: _product(w2, d[place], d[place]),
            "cross": lambda: _product(w2, d[place], d[place + shape.outcomes]),
            "absolute": lambda: exp.Abs(this=_product(w, _column(f"fa_y{place}"))),
        }
        return exp.Sum(this=terms[name]())

    def lines(self) -> exp.Query:
        """All lines."""
        mark = called("SUBSTR", self.keyed(_text(self.plan.fingerprint)), 1, MARK)
        head = exp.Concat(expressions=[_text(f"{self.plan.fingerprint} {_DIGEST_HERE} "), mark])
        made: list[exp.Query] = [select(*self.line(HEAD, level=head))]
        rules = [(place, at, rule) for place, each in enumerate(self.faults.values()) for at, rule in each]
        counts: list[tuple[int, Expression]] = []
        for place, at, rule in rules:
            test: Expression = _column(f"fa_q{place}").eq(at)
            if rule == CLIPPED:
                test = exp.and_(test, _column("fa_bad").eq(0))
            counts.append((at, exp.Sum(this=_case((test, number(1)), other=number(0)))))
        arm = self.code(self.plan.arm)
        ordered = [count for _, count in sorted(counts, key=lambda each: each[0])]
        bad = exp.Sum(this=_column("fa_bad"))
        made.append(select(*self.line(FAULTS, arm=arm, n=bad, values=ordered)).from_("foldaway_judged").group_by(arm))
        if not self.plan.one_each:
            units = select(_column("fa_unit"), _as(exp.Min(this=_column("fa_arm")), "fa_arm"))
            units = units.from_("foldaway_good").group_by(_column("fa_unit"))
            count = exp.Count(this=exp.Star())
            chosen = self.line(UNITS, arm=_column("fa_arm"), n=count)
            made.append(select(*chosen).from_(units.subquery("foldaway_units")).group_by(_column("fa_arm")))
        centers = [_column(f"fa_m{v}") for v in range(self.shape.columns)]
        made.append(select(*self.line(CENTERS, arm=_column("fa_of"), values=centers)).from_("foldaway_centers"))
        for place, part in enumerate(self.parts):
            made += self.lines_of(part, f"foldaway_cells_{place}")
        return reduce(lambda one, two: one.union(two, distinct=False, copy=False), made)

    def lines_of(self, part: Part, cells: str) -> list[exp.Select]:
        """Those of a part: by arm and group, and for sums of second order by arm."""
        keys: dict[str, Expression] = {"arm": _column("fa_arm_key")}
        if part.segment >= 0:
            keys["level"] = cast(_column("fa_level_key"), "text")
        if part.kind != "sums":
            keys["place"] = _column("fa_place_key")
        group = _column("fa_grp_key") if self.plan.grouped else _ZERO
        first = len(by_group(part.shape)) if part.shape is not None else 2 * self.plan.weighted
        values = [_column(f"fa_s{place}") for place in range(first)]
        made = [select(*self.line(part.name, **keys, grp=group, n=_column("fa_n"), values=values)).from_(cells)]
        if part.shape is not None:
            second = [exp.Sum(this=_column(f"fa_s{first + place}")) for place in range(len(by_arm(part.shape)))]
            n = exp.Sum(this=_column("fa_n"))
            chosen = self.line(part.name, **keys, grp=exp.Neg(this=exp.Literal.number(1)), n=n, values=second)
            made.append(select(*chosen).from_(cells).group_by(*(_column(f"fa_{name}_key") for name in keys)))
        return made

    def line(
        self,
        part: str,
        *,
        level: Expression | None = None,
        arm: Expression = _ZERO,
        place: Expression = _ZERO,
        grp: Expression = _ZERO,
        n: Expression = _ZERO,
        values: Sequence[Expression] = (),
    ) -> list[Expression]:
        """The columns of lines; numbers that there are not are 0. Those of the first line fix the types."""
        first = part == HEAD
        given = {"part": _text(part), "level": _text("") if level is None else level}
        chosen = [_as(cast(value, "text") if first else value, name) for name, value in given.items()]
        wholes = {"arm": arm, "place": place, "grp": grp, "n": n}
        chosen += [
            _as(cast(value, "bigint") if first or name == "n" else value, name) for name, value in wholes.items()
        ]
        numbers: list[Expression] = [exp.Coalesce(this=value, expressions=[number(0)]) for value in values]
        numbers += [cast(number(0), "double") if first else number(0)] * (numbers_in(self.plan) - len(values))
        return chosen + [_as(value.copy(), f"s{at}") for at, value in enumerate(numbers)]
