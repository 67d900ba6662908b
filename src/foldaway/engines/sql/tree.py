"""Pieces of a statement's tree."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from sqlglot import exp

from foldaway.engines.sql.dialects import Expression, number

ZERO = exp.Literal.number(0)


def field(name: str, table: str | None = None) -> exp.Column:
    """A column, quoted."""
    return exp.column(name, table=table, quoted=True)


def named(value: Expression, name: str) -> Expression:
    """A value under a name."""
    return exp.alias_(value, name, quoted=True)


def literal(value: str) -> Expression:
    """A text."""
    return exp.Literal.string(value)


def case(*branches: tuple[Expression, Expression | int], other: Expression | int | None = None) -> Expression:
    """The value of the first condition that holds."""
    if not branches:
        return exp.convert(other)
    made = exp.Case()
    for condition, value in branches:
        made = made.when(condition.copy(), exp.convert(value, copy=True))
    return made if other is None else made.else_(exp.convert(other, copy=True))


def flag(condition: Expression) -> Expression:
    """1 where a condition holds, and otherwise 0."""
    return case((condition, 1), other=0)


def product(*factors: Expression | None) -> Expression:
    """The product of those factors that there are."""
    return reduce(lambda one, two: one * two, [factor for factor in factors if factor is not None])


def plus(terms: Iterable[Expression]) -> Expression:
    """The sum of terms."""
    return reduce(lambda one, two: one + two, terms)


def present(value: Expression) -> Expression:
    """Whether a value is not null."""
    return exp.not_(exp.Is(this=value.copy(), expression=exp.Null()))


def within(value: Expression, lower: float, upper: float) -> Expression:
    """A number brought within its bounds."""
    return case((value < number(lower), number(lower)), (value > number(upper), number(upper)), other=value)
