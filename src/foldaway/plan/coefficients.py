"""The part of a plan that says how covariates predict each outcome, fixed before the trial."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, ClassVar, Self

from msgspec import Meta

from foldaway.plan.part import Part

Numbers = Annotated[Mapping[str, float], Meta(description="a table with a number for each column of covariates")]
Slopes = Annotated[
    Mapping[str, Mapping[str, float]], Meta(description="a table for each outcome, with a number for each column")
]


class Coefficients(Part, frozen=True, kw_only=True):
    """How covariates predict each outcome: the prediction is the sum of slope · (column − center).

    Columns are the covariates, or for a categorical one its levels but the first, as in ``country[fr]``. Any numbers
    leave the effect unbiased; those of earlier records make its interval narrow. A ratio has slopes for both of its
    columns, and a share or a capped mean under the name that it has by default.

    Attributes:
        center: The mean of each column among earlier records.
        slopes: By outcome, the slope of each column.

    Example:
        >>> Coefficients(center={"before": 12.0}, slopes={"revenue": {"before": 0.8}}).slopes["revenue"]
        {'before': 0.8}
    """

    TABLE: ClassVar[str] = "coefficients"

    center: Numbers
    slopes: Slopes

    @classmethod
    def none(cls, columns: Iterable[str], outcomes: Iterable[str]) -> Self:
        """Those that predict nothing."""
        zeros = dict.fromkeys(columns, 0.0)
        return cls(center=zeros, slopes={outcome: dict(zeros) for outcome in outcomes})

    def misfits(self, columns: tuple[str, ...], outcomes: tuple[str, ...]) -> Iterator[str]:
        """A sentence for each table that does not have a number for every column, or a table for every outcome."""
        if set(self.slopes) != set(outcomes):
            yield "`coefficients.slopes` must have a table for each outcome and no other."
        tables = {"center": self.center, **{f"slopes.{outcome}": table for outcome, table in self.slopes.items()}}
        for name, table in tables.items():
            if set(table) != set(columns):
                yield f"`coefficients.{name}` must have a number for each of {', '.join(columns)}, and no other."
