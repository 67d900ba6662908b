"""What coefficients follow from as one statement: sums of products of earlier records, which stay in their database."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from sqlglot import exp, select

from foldaway.engines.sql.dialects import DIALECTS, Dialect, Expression, cast, number
from foldaway.engines.sql.read_rows import ReadRows, parsed
from foldaway.engines.sql.tree import field, named, present, product
from foldaway.plan import Plan
from foldaway.tallies.products import COUNTS, entries_of, numbers_of


def products(plan: Plan, query: str, dialect: str) -> str:
    """The statement for a plan, what it selects from, and a dialect."""
    built = _Products(plan, DIALECTS[dialect], parsed(query, dialect))
    return built.whole().sql(dialect, pretty=True, comments=False)


class _Products(ReadRows):
    """The statement: a line for each set of values that records have or lack together, and one of counts."""

    def __init__(self, plan: Plan, dialect: Dialect, rows: exp.Query) -> None:
        super().__init__(plan, dialect, rows, list(filter(plan.levels_of, plan.covariates)))

    def whole(self) -> exp.Select:
        """The statement."""
        sets = self.plan.present_together
        steps = {**self.steps(), "foldaway_good": self.good()}
        for place, values in enumerate(sets):
            steps[f"foldaway_set_{place}"] = self.having(values)
            steps[f"foldaway_means_{place}"] = self.means(values, place)
        counts = [exp.Sum(this=field("fa_bad")), *self.counts()]
        counted = self.line(COUNTS, exp.Count(this=exp.Star()), counts)
        lines: list[exp.Query] = [select(*counted).from_("foldaway_judged")]
        lines += [self.sums(values, place) for place, values in enumerate(sets)]
        steps["foldaway_lines"] = reduce(lambda one, two: one.union(two, distinct=False, copy=False), lines)
        made = select("*").from_("foldaway_lines")
        for name, step in steps.items():
            made = made.with_(name, as_=step, copy=False)
        return made

    def good(self) -> exp.Select:
        """The good records: covariates' columns, then values, and the weight."""
        columns = [*self.predictors(), *map(self.value, self.plan.values)]
        chosen = [named(column, f"fa_z{place}") for place, column in enumerate(columns)]
        if self.plan.weight is not None:
            chosen.append(named(self.own(self.plan.weight), "fa_weight"))
        return select(*chosen).from_("foldaway_judged").where(field("fa_bad").eq(0))

    def columns(self, values: Sequence[int]) -> list[Expression]:
        """The columns of the records that have these values."""
        covariates = len(self.plan.predictors) - 1
        return [field(f"fa_z{place}") for place in (*range(covariates), *(covariates + value for value in values))]

    def having(self, values: Sequence[int]) -> exp.Select:
        """The records that have these values."""
        return select("*").from_("foldaway_good").where(*map(present, self.columns(values)))

    def means(self, values: Sequence[int], place: int) -> exp.Select:
        """Their means, about which products are summed, so that these lose no digits."""
        means = [named(exp.Avg(this=column), f"fa_m{at}") for at, column in enumerate(self.columns(values))]
        return select(*means).from_(f"foldaway_set_{place}")

    def sums(self, values: Sequence[int], place: int) -> exp.Select:
        """Their line, in the order of `entries_of`."""
        w = None if self.plan.weight is None else field("fa_weight")
        columns = self.columns(values)
        means: list[Expression] = [field(f"fa_m{at}") for at in range(len(columns))]
        away = [exp.paren(column - mean) for column, mean in zip(columns, means, strict=True)]
        terms: dict[str, Any] = {
            "weight": lambda: exp.Count(this=exp.Star()) if w is None else exp.Sum(this=w),
            "mean": lambda at: exp.Min(this=means[at]),
            "sum": lambda at: exp.Sum(this=product(w, away[at])),
            "product": lambda one, two: exp.Sum(this=product(w, away[one], away[two])),
            "absolute": lambda at: exp.Sum(this=exp.Abs(this=product(w, columns[at]))),
        }
        made = [terms[name](*index) for name, index in entries_of(self.plan, values)]
        chosen = self.line(place, exp.Count(this=exp.Star()), made)
        return select(*chosen).from_(f"foldaway_set_{place}").join(f"foldaway_means_{place}", join_type="cross")

    def line(self, place: int, n: Expression, values: Sequence[Expression]) -> list[Expression]:
        """The columns of a line; numbers that there are not are 0."""
        numbers: list[Expression] = [exp.Coalesce(this=value, expressions=[number(0)]) for value in values]
        numbers += [number(0)] * (numbers_of(self.plan) - len(values))
        counted = exp.Coalesce(this=n, expressions=[exp.Literal.number(0)])
        chosen = [named(exp.convert(place), "place"), named(cast(counted, "bigint"), "n")]
        return chosen + [named(cast(value, "double"), f"s{at}") for at, value in enumerate(numbers)]
