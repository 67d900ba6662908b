"""What differs between the dialects of SQL, beside what sqlglot knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from sqlglot import exp

KEY_HERE = "foldaway_group_key"
"""What stands for the group key until the client's own placeholder does."""

Expression: TypeAlias = exp.Expr

_DIGITS = "0123456789abcdef"


def called(name: str, *arguments: Any) -> Expression:
    """A call of a function under this very name."""
    return exp.Anonymous(this=name, expressions=[exp.convert(each, copy=True) for each in arguments])


def number(value: float) -> Expression:
    """A literal of double precision: with an exponent, as other decimals are exact numbers of another type."""
    digits, _, exponent = repr(abs(float(value))).partition("e")
    literal = exp.Literal.number(f"{digits}e{int(exponent or 0)}")
    return exp.Neg(this=literal) if value < 0 else literal


def cast(value: Expression, kind: str) -> Expression:
    """A value as ``"double"``, ``"text"`` or ``"bigint"``."""
    return exp.cast(value.copy(), kind)


def _same(value: Expression) -> Expression:
    return value


def _no_number(value: Expression) -> Expression:
    """NaN, which equals itself."""
    return exp.EQ(this=value.copy(), expression=exp.cast(exp.Literal.string("NaN"), "double"))


def _of_other_types(*types: str) -> Callable[[Expression], Expression]:
    """Whether a column of PostgreSQL is of another type than these."""
    kinds = [exp.cast(exp.Literal.string(each), exp.DataType.build("regtype", udt=True)) for each in types]
    return lambda value: exp.not_(called("PG_TYPEOF", value).isin(*kinds))


def _of_types(*types: str) -> Callable[[Expression], Expression]:
    """Whether a value is of another type than these; a column may hold several."""
    return lambda value: exp.not_(exp.Lower(this=called("TYPEOF", value)).isin(*types, "null"))


def _spelt(digits: Expression) -> Expression:
    """The number that three hexadecimal digits spell, from functions that every database has."""
    places = [
        exp.StrPosition(this=exp.Literal.string(_DIGITS), substr=called("SUBSTR", digits, at, 1)) for at in (1, 2, 3)
    ]
    first, second, third = (exp.paren(place - 1) for place in places)
    return first * 256 + second * 16 + third


def _as_bits(digits: Expression) -> Expression:
    """The same number in PostgreSQL, which reads the digits once."""
    bits = exp.DPipe(this=exp.Literal.string("x"), expression=called("SUBSTR", digits, 1, 3))
    return exp.cast(exp.cast(exp.paren(bits), "bit(12)"), "int")


class Dialect(NamedTuple):
    """A dialect.

    Attributes:
        name: What sqlglot calls it.
        digest: Gives SHA-256 of a text in UTF-8 as small hexadecimal digits.
        nan: Whether a number is NaN; None if the database has none.
        exact: Makes text compare by its bytes, where it would not.
        no_number: Whether a value that is cast to a number is none; None if the cast itself would fail.
        no_name: The same of text and integers.
        secret: A place for the group key, in printed text.
        spelt: The number that the first three digits of a digest spell.
        repeats: Whether a step that several others read is computed for each of them, where its rows come from one
            table: kept in between, they would be written to the disk, and read by one process alone.
    """

    name: str
    digest: Callable[[Expression], Expression]
    nan: Callable[[Expression], Expression] | None = None
    exact: Callable[[Expression], Expression] = _same
    no_number: Callable[[Expression], Expression] | None = None
    no_name: Callable[[Expression], Expression] | None = None
    secret: str = ":group_key"
    spelt: Callable[[Expression], Expression] = _spelt
    repeats: bool = False


def _unlike(asked: Callable[[Expression], Expression], pattern: str) -> Callable[[Expression], Expression]:
    """Whether what a database says of a value does not match a pattern."""
    return lambda value: exp.not_(exp.RegexpLike(this=asked(value.copy()), expression=exp.Literal.string(pattern)))


def _kind(name: str) -> Callable[[Expression], Expression]:
    return lambda value: exp.Lower(this=called(name, value))


def _printed_unlike(pattern: str) -> Callable[[Expression], Expression]:
    """The same of a value as text, in functions that MariaDB and MySQL both have."""
    return lambda value: called("REGEXP_INSTR", cast(value, "text"), pattern).eq(0)


def _no_text(value: Expression) -> Expression:
    """Whether a value of MariaDB has no character set."""
    return called("CHARSET", value).eq(exp.Literal.string("binary"))


def _nan(name: str) -> Callable[[Expression], Expression]:
    return lambda value: called(name, value)


def _sha2(text: Expression) -> Expression:
    return called("SHA2", text, 256)


def _bytes_alone(text: Expression) -> Expression:
    """Without padding, and capital letters apart."""
    return exp.Collate(this=called("CONCAT", text), expression=exp.Var(this="utf8mb4_nopad_bin"))


_INTEGER, _DECIMAL = "^-?[0-9]+$", "^[-+]?([0-9]+[.]?[0-9]*|[.][0-9]+)(e[-+]?[0-9]+)?$"
_INTEGERS = "((tiny|small|big)?int|integer|byte|short|long)"
_TEXT_OR_INTEGER = f"^(string|varchar.*|char.*|{_INTEGERS})$"
_ANY_NUMBER = f"^({_INTEGERS}|float|real|double|decimal.*|boolean)$"

# Of DuckDB's integers.
_SIZES = ("tinyint", "smallint", "integer", "bigint", "hugeint")

DIALECTS = {
    each.name: each
    for each in (
        Dialect(
            "duckdb",
            lambda text: called("SHA256", text),
            _nan("ISNAN"),
            no_name=_of_types("varchar", *(f"{sign}{size}" for sign in ("", "u") for size in _SIZES)),
            secret="$group_key",
        ),
        Dialect(
            "postgres",
            lambda text: called("ENCODE", called("SHA256", called("CONVERT_TO", text, "UTF8")), "hex"),
            _no_number,
            no_name=_of_other_types("text", "varchar", "smallint", "integer", "bigint"),
            spelt=_as_bits,
            repeats=True,
        ),
        Dialect(
            "sqlite",
            lambda text: called("FOLDAWAY_SHA256", text),
            no_number=_of_types("integer", "real"),
            no_name=_of_types("integer", "text"),
        ),
        Dialect(
            "clickhouse",
            lambda text: called("lower", called("hex", called("SHA256", text))),
            _nan("isNaN"),
            no_number=_unlike(_kind("toTypeName"), "^(lowcardinality[(])?(nullable[(])?(u?int|float|decimal|bool)"),
            no_name=_unlike(_kind("toTypeName"), "^(lowcardinality[(])?(nullable[(])?(u?int|string)"),
            secret="{group_key:String}",
        ),
        Dialect(
            "mysql",
            _sha2,
            exact=_bytes_alone,
            no_number=_printed_unlike(_DECIMAL),
            no_name=lambda value: exp.and_(_no_text(value), _printed_unlike(_INTEGER)(value)),
        ),
        *(
            Dialect(
                name,
                _sha2,
                _nan("ISNAN"),
                no_number=_unlike(_kind("TYPEOF"), _ANY_NUMBER),
                no_name=_unlike(_kind("TYPEOF"), _TEXT_OR_INTEGER),
            )
            for name in ("spark", "databricks")
        ),
        Dialect("bigquery", lambda text: called("TO_HEX", called("SHA256", text)), _nan("IS_NAN"), secret="@group_key"),
        Dialect(
            "snowflake",
            _sha2,
            _no_number,
            no_name=lambda value: _of_types("integer", "varchar")(called("TO_VARIANT", value)),
        ),
        Dialect("redshift", _sha2, _no_number),
        Dialect(
            "trino",
            lambda text: called("LOWER", called("TO_HEX", called("SHA256", called("TO_UTF8", text)))),
            _nan("IS_NAN"),
            no_number=_unlike(_kind("TYPEOF"), _ANY_NUMBER),
            no_name=_unlike(_kind("TYPEOF"), _TEXT_OR_INTEGER),
            secret="?",
        ),
    )
}
