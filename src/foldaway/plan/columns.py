"""Covariates, segments and baseline characteristics: columns by name, and what a plan says of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from foldaway.plan.limits import Beyond, ColumnLimits, Ends
from foldaway.plan.part import Fixed, Part

Column = Annotated[str, Meta(description="the name of a column")]
Levels = Annotated[Sequence[str], Meta(description="a list of two or more levels")]


class LevelledColumn(msgspec.Struct, frozen=True):
    """What a covariate, a segment and a characteristic have in common: the column, which may have levels."""

    SHORT: ClassVar[str] = "column"
    LISTED: ClassVar[bool] = True

    column: Column
    levels: Levels | None = None

    def faults(self) -> Iterator[str]:
        """What is wrong with the levels."""
        yield from level_faults(self.column, self.levels)


class Segment(LevelledColumn, Part, frozen=True):
    """A column for whose values effects are shown separately. In short: the column alone.

    Attributes:
        column: The column.
        levels: Its values, which hold for a covariate and the strata of this column too. If left out, they are those
            that enough records have in common, and all others make up one more.

    Example:
        >>> Segment("country", ["de", "fr"]).levels
        ('de', 'fr')
    """

    TABLE: ClassVar[str] = "segments"


class Covariate(LevelledColumn, Part, frozen=True):
    """A column that was measured before treatment. In short: the column alone.

    Attributes:
        column: The column.
        levels: The values of a categorical covariate, of which the first is the reference. They hold for a segment and
            the strata of this column too.
        bounds: The lowest and the highest value of a numeric covariate.
        beyond: What happens to values beyond them: ``"clip"`` them, counted by arm, or ``"refuse"`` them as faulty.

    Example:
        >>> Covariate("country", ["de", "fr"]).levels
        ('de', 'fr')
    """

    TABLE: ClassVar[str] = "covariates"

    bounds: Ends | None = None
    beyond: Beyond = "clip"

    def faults(self) -> Iterator[str]:
        """What is wrong with the levels and the bounds."""
        yield from super().faults()
        if self.bounds is None and self.beyond != "clip":
            yield f"`beyond` of {self.column!r} needs `bounds`."


class Characteristic(LevelledColumn, Part, frozen=True):
    """A column of the table of baseline characteristics, which a record may lack. In short: the column alone.

    Attributes:
        column: The column. It may be a covariate, a segment or the strata's besides.
        levels: The levels of a categorical one. If left out, the column has numbers or text, whichever more records
            have; the others count as missing. Text levels get a name once enough units have them, and the rest are
            counted together. Where a database sums the records, a column without levels is numeric.

    Example:
        >>> Characteristic("sex", ["female", "male"]).levels
        ('female', 'male')
    """

    TABLE: ClassVar[str] = "baseline"


def level_faults(column: str, levels: Sequence[str] | None) -> Iterator[str]:
    """What is wrong with the levels of a column, if they are listed."""
    if levels is not None and len(levels) < 2:
        yield f"the levels of {column!r} must be at least two."
    elif levels is not None and len(set(levels)) < len(levels):
        yield f"the levels of {column!r} contain one of them twice."


class Columns(tuple[str, ...]):
    """The names of covariates, segments or characteristics; and, in `parts`, what the plan says of each.

    Example:
        >>> covariates = Columns([Covariate("age"), Covariate("country", ["de", "fr"])])
        >>> tuple(covariates), covariates.levels
        (('age', 'country'), {'country': ('de', 'fr')})
        >>> covariates.written()
        ['age', {'column': 'country', 'levels': ('de', 'fr')}]
    """

    parts: tuple[LevelledColumn, ...]

    def __new__(cls, parts: Iterable[Any] = ()) -> Columns:
        """The columns of these parts."""
        parts = tuple(parts)
        columns = super().__new__(cls, (each.column for each in parts))
        columns.parts = parts
        return columns

    def __repr__(self) -> str:
        return repr(self.written())

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (self.parts,)

    @property
    def levels(self) -> Mapping[str, Sequence[str]]:
        """By column, its levels, where they are listed."""
        return Fixed({each.column: each.levels for each in self.parts if each.levels is not None})

    @property
    def limits(self) -> Mapping[str, ColumnLimits]:
        """By column, its bounds, where it has some."""
        given = [each for each in self.parts if isinstance(each, Covariate)]
        return Fixed({each.column: ColumnLimits(each.bounds, each.beyond) for each in given if each.bounds is not None})

    def listing(self, levels: Mapping[str, Sequence[str]]) -> Columns:
        """These columns, of which those have levels that have them here."""
        return Columns(msgspec.structs.replace(each, levels=levels.get(each.column)) for each in self.parts)

    def without(self, column: str) -> Columns:
        """These columns but one."""
        return Columns(each for each in self.parts if each.column != column)

    def written(self) -> list[str | dict[str, Any]]:
        """As a plan has them: a name where nothing else is said of the column."""
        tables: list[dict[str, Any]] = [msgspec.to_builtins(each) for each in self.parts]
        return [each["column"] if len(each) == 1 else each for each in tables]
