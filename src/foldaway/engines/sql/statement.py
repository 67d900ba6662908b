"""A plan's sums as one statement: the rows stay where they are, and what comes back are lines by arm and group.

The statement goes down in steps, each a common table expression of its own: the user's query, its columns as numbers
and text, codes and what is wrong with them, the good records with their values, what sums are about, so that squares
lose no digits, and sums by cell. `tallies/answer.py` says how the lines are laid out. The statement is built as a tree,
and sqlglot writes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, reduce
from hashlib import sha256
from typing import Any

from sqlglot import exp, select

from foldaway.engines.sql.dialects import DIALECTS, Dialect, Expression, called, cast, number
from foldaway.engines.sql.read_rows import ReadRows, from_one_table, parsed
from foldaway.engines.sql.tree import ZERO, case, field, literal, named, plus, present, product
from foldaway.errors import PlanError, did_you_mean
from foldaway.plan import Plan
from foldaway.plan.outcomes import Binning, Bins, Exits
from foldaway.plan.outcomes.binning import NUDGE
from foldaway.plan.vocabulary import MOMENTS, SIPHASH
from foldaway.tallies.answer import (
    BASELINE,
    BESIDE,
    CENTERS,
    FAULTS,
    HEAD,
    KEYS,
    MARK,
    UNITS,
    AnswerPart,
    by_arm,
    by_group,
    numbers_in,
    parts_of,
)
from foldaway.tallies.predictor import predictor_of
from foldaway.tallies.sums import SumsShape

_DIGEST_HERE = "foldaway_statement_digest"


def not_in_sql(plan: Plan) -> str:
    """Why records of this plan cannot be summed where they are; empty if they can."""
    if plan.federated is not None:
        return "its records are those of devices and sites"
    if plan.keeps == MOMENTS:
        return "it keeps moments, which no database sums"
    if plan.release is not None:
        return "a `release` limits the records of each unit, which are counted as they come"
    if plan.grouped and plan.clustering is None:
        return "its records have no `unit` to be dealt into groups by, and are dealt as they come"
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
    built = _Statement(plan, DIALECTS[dialect], parsed(relation, dialect), secret)
    made = built.whole().sql(dialect, pretty=True, comments=False)
    return made.replace(_DIGEST_HERE, sha256(made.encode()).hexdigest()[:32])  # it says of itself which it is


class _Statement(ReadRows):
    """The statement of a plan in a dialect."""

    def __init__(self, plan: Plan, dialect: Dialect, rows: exp.Query, secret: str) -> None:
        self.secret = exp.Var(this=secret or dialect.secret)
        texts = [plan.arm, *filter(plan.levels_of, plan.covariates), *plan.segments, plan.unit, plan.cluster]
        texts += [None if plan.strata is None else plan.strata.column, *filter(plan.levels_of, plan.baseline)]
        super().__init__(plan, dialect, rows, list(dict.fromkeys(name for name in texts if name is not None)))
        self.numbers += [name for name in plan.baseline if name not in (*self.texts, *self.numbers)]
        self.parts = list(parts_of(plan))
        self.shape = next(part.shape for part in self.parts if part.shape is not None and part.kind == "sums")

    def whole(self) -> exp.Select:
        """The statement."""
        secret = select(named(cast(self.secret, "text"), "fa_key"))
        steps: dict[str, exp.Query] = {
            **({} if self.dialect.repeats else {"foldaway_secret": secret}),
            **self.steps(),
            "foldaway_good": self.good(),
            "foldaway_centers": self.centers(),
            "foldaway_centered": self.centered(),
        }
        steps |= {f"foldaway_cells_{place}": self.cells(part) for place, part in enumerate(self.parts)}
        steps["foldaway_lines"] = self.lines()
        values = [field(f"s{place}") for place in range(numbers_in(self.plan))]
        total = plus([field("n"), *values])
        lines = exp.Window(this=exp.Count(this=exp.Star()))
        made = select(*map(field, KEYS), *values, named(total, BESIDE[0]), named(lines, BESIDE[1]))
        made = made.from_("foldaway_lines")
        for name, step in steps.items():
            repeated = name in self.repeated
            made = made.with_(name, as_=step, materialized=False if repeated else None, copy=False)
        return made

    @cached_property
    def repeated(self) -> frozenset[str]:
        """The steps that are computed for each step that reads them."""
        if not self.dialect.repeats:
            return frozenset()
        steps = {*super().steps(), "foldaway_good", "foldaway_centered"}
        return frozenset(steps if from_one_table(self.rows) else steps - {"foldaway_records"})

    def checked(self) -> exp.Select:
        """And the unit, and its hash."""
        chosen, plan = super().checked(), self.plan
        if (unit := plan.unit or plan.cluster) is not None and not plan.one_each:
            chosen = chosen.select(named(self.text(unit), "fa_unit"))
        if plan.grouped and plan.clustering is not None:
            chosen = chosen.select(named(self.keyed(self.text(plan.clustering)), "fa_hash"))
        return chosen

    def keyed(self, text: Expression) -> Expression:
        """SHA-256 of a text under the group key."""
        key: Expression = select(field("fa_key")).from_("foldaway_secret").subquery()
        if self.dialect.repeats:  # by itself, since processes side by side cannot read a step
            key = cast(self.secret, "text")
        return self.dialect.digest(exp.Concat(expressions=[key, text.copy()]))

    def good(self) -> exp.Select:
        """The good records: codes, values, weights, bins."""
        plan = self.plan
        chosen = [named(self.code(plan.arm), "fa_arm")]
        chosen += [named(self.code(name), f"fa_l{place}") for place, name in enumerate(plan.segments)]
        if plan.strata is not None:
            chosen.append(named(self.code(plan.strata.column), "fa_stratum"))
        if plan.grouped:
            chosen.append(named(self.dialect.spelt(field("fa_hash")), "fa_group"))
        if not plan.one_each:
            chosen.append(field("fa_unit"))
        own = None if plan.weight is None else field(f"fa_v{self.numbers.index(plan.weight)}")
        if own is not None:
            chosen.append(named(own, "fa_own"))
        if plan.weighted:
            chosen.append(named(product(own, self.inverse()), "fa_weight"))
        values = [self.value(value) for value in plan.values]
        chosen += [named(value, f"fa_y{place}") for place, value in enumerate((*values, *self.adjusted(values)))]
        chosen += [named(self.trait(*trait), f"fa_z{place}") for place, trait in enumerate(plan.traits)]
        chosen += [named(self.bin(bins), f"fa_b{place}") for place, bins in enumerate(plan.bins)]
        return select(*chosen).from_("foldaway_judged").where(field("fa_bad") < 1)

    def trait(self, column: str, level: str | None) -> Expression:
        """A trait of a record; null where it lacks the column."""
        if level is None:
            return self.own(column)
        code, levels = self.code(column), list(self.plan.levels_of(column) or ())
        return case((code.eq(levels.index(level)), number(1)), (code >= 0, number(0)))

    def inverse(self) -> Expression | None:
        """One over the probability of a record's arm in its stratum."""
        strata = self.plan.strata
        if strata is None:
            return None
        at = self.code(strata.column) * len(self.plan.arms) + self.code(self.plan.arm)
        rates = (1 / self.plan.strata_shares).reshape(-1)
        return case(*((at.eq(code), number(rate)) for code, rate in enumerate(rates.tolist())))

    def adjusted(self, values: Sequence[Expression]) -> list[Expression]:
        """The values less what covariates predict, if the plan has coefficients."""
        predictor = predictor_of(self.plan)
        if predictor is None:
            return []
        about = [exp.paren(x - number(c)) for x, c in zip(self.predictors(), predictor.center.tolist(), strict=True)]
        slopes = predictor.slopes.tolist()
        predicted = [plus(number(b) * x for b, x in zip(row, about, strict=True)) for row in slopes]
        return [value - exp.paren(each) for value, each in zip(values, predicted, strict=True)]

    def bin(self, bins: Binning) -> Expression:
        """The bin of a record: see `Bins.of` and `Exits.codes`."""
        if isinstance(bins, Exits):
            return self.exit(bins)
        assert isinstance(bins, Bins)
        value, scale, last = self.own(bins.column), bins.scale, bins.within
        if bins.logarithmic:
            place = exp.Ln(this=value / number(bins.lower)) * number(scale)
        else:
            place = exp.paren(value - number(bins.lower)) * number(scale)
        inside = cast(exp.Floor(this=exp.paren(place + number(NUDGE))), "bigint") + 1
        return case(
            (value < number(bins.lower), 0),
            (value > number(bins.upper), last + 1),
            (value >= number(bins.upper), last),
            (present(value), case((inside > last, last), other=inside)),
        )

    def exit(self, exits: Exits) -> Expression:
        """The bin of an exit."""
        time, event, last = self.own(exits.column), self.own(exits.event), exits.stretches
        place = exp.paren(time * number(last / exits.until) - number(NUDGE))
        code = cast(exp.paren(exp.Ceil(this=place) * number(2) + event), "bigint")  # of a faulty time it may be huge
        both = exp.and_(present(time), present(event))
        return case((exp.and_(both, place > last), 2 * last), (both, code))

    def centers(self) -> exp.Select:
        """What sums are about: the arm's mean of each value and trait."""
        means = [
            named(exp.Coalesce(this=exp.Avg(this=field(value)), expressions=[number(0)]), mean)
            for value, mean, _ in self.columns
        ]
        return select(named(field("fa_arm"), "fa_of"), *means).from_("foldaway_good").group_by(field("fa_arm"))

    @property
    def columns(self) -> list[tuple[str, str, str]]:
        """The names of all values and traits, of their means, and of how far they are from these."""
        sizes = {("fa_y", "fa_m", "fa_d"): self.shape.columns, ("fa_z", "fa_n", "fa_e"): len(self.plan.traits)}
        return [(f"{y}{v}", f"{m}{v}", f"{d}{v}") for (y, m, d), size in sizes.items() for v in range(size)]

    def centered(self) -> exp.Select:
        """The good records with their values about the means."""
        if self.dialect.repeats:  # a join would keep processes from working side by side
            away = [named(field(value) - self.center(mean), name) for value, mean, name in self.columns]
            return select("*", *away).from_("foldaway_good")
        away = [named(field(value) - field(mean), name) for value, mean, name in self.columns]
        matched = field("fa_of").eq(field("fa_arm"))
        return select("*", *away).from_("foldaway_good").join("foldaway_centers", on=matched)

    def center(self, mean: str) -> Expression:
        """The mean of a value in a record's arm."""
        of_arm = select(field(mean)).from_("foldaway_centers")
        means = [of_arm.where(field("fa_of").eq(arm)).subquery() for arm in range(len(self.plan.arms))]
        return case(*((field("fa_arm").eq(arm), each) for arm, each in enumerate(means)))

    def cells(self, part: AnswerPart) -> exp.Select:
        """Sums by cell of a part."""
        keys: dict[str, Expression] = {"arm": field("fa_arm")}
        if part.segment >= 0:
            keys["level"] = field(f"fa_l{part.segment}")
        if part.kind == "exits":
            keys["level"] = field("fa_stratum")
        if part.kind in ("strata", "bins", "exits"):
            keys["place"] = field("fa_stratum" if part.kind == "strata" else f"fa_b{part.number}")
        if self.plan.grouped and part.kind != BASELINE:
            keys["grp"] = field("fa_group") % part.groups
        weight = self.weight(part)
        if part.shape is None:
            sums: list[Expression] = (
                [] if weight is None else [exp.Sum(this=weight), exp.Sum(this=product(weight, weight))]
            )
        else:
            letters = "yd" if part.kind != BASELINE else "ze"
            sums = [
                self.summed(part.shape, weight, name, index, *letters)
                for name, index in (*by_group(part.shape), *by_arm(part.shape))
            ]
        chosen = [*(named(key, f"fa_{name}_key") for name, key in keys.items())]
        chosen.append(named(exp.Count(this=exp.Star()), "fa_n"))
        chosen += [named(each, f"fa_s{place}") for place, each in enumerate(sums)]
        made = select(*chosen).from_("foldaway_centered").group_by(*(key.copy() for key in keys.values()))
        return made if part.shape is not None else made.where(present(keys["place"]))

    def weight(self, part: AnswerPart) -> Expression | None:
        """What a record weighs in a part: within strata no more than the plan says, and nothing in the baseline."""
        if part.within_strata:
            return None if self.plan.weight is None else field("fa_own")
        return field("fa_weight") if self.plan.weighted and part.kind != BASELINE else None

    def summed(
        self, shape: SumsShape, w: Expression | None, name: str, index: tuple[int, ...], own: str, away: str
    ) -> Expression:
        """A sum that tallies keep, of the records of a cell; columns by letter, as they are and about means."""
        d = [field(f"fa_{away}{v}") for v in range(shape.columns)]
        place = index[0]
        here = d[place % shape.outcomes]
        w2 = None if w is None else w * w
        if name == "present":
            return cast(exp.Count(this=here), "double")
        if name == "weight":
            everyone = not shape.missing or place == shape.outcomes
            return exp.Sum(this=w if everyone or w is None else case((present(here), w)))
        if name == "joint":
            one, two = (shape.block(outcome) for outcome in shape.pairs[place])
            return exp.Sum(this=product(w2, d[one[index[1]]], d[two[index[2]]]))
        terms: Mapping[str, Any] = {
            "total": lambda: product(w, d[place]),
            "mass": lambda: case((present(here), product(w, w))),
            "first": lambda: product(w2, d[place]),
            "square": lambda: product(w2, d[place], d[place]),
            "cross": lambda: product(w2, d[place], d[place + shape.outcomes]),
            "absolute": lambda: exp.Abs(this=product(w, field(f"fa_{own}{place}"))),
        }
        return exp.Sum(this=terms[name]())

    def lines(self) -> exp.Query:
        """All lines."""
        mark = called("SUBSTR", self.keyed(literal(self.plan.fingerprint)), 1, MARK)
        head = exp.Concat(expressions=[literal(f"{self.plan.fingerprint} {_DIGEST_HERE} "), mark])
        made: list[exp.Query] = [select(*self.line(HEAD, level=head))]
        arm = self.code(self.plan.arm)
        bad = exp.Sum(this=field("fa_bad"))
        faulty = select(*self.line(FAULTS, arm=arm, n=bad, values=self.counts())).from_("foldaway_judged")
        made.append(faulty.where(self.broken()).group_by(arm))
        if not self.plan.one_each:
            count = exp.Count(this=exp.Distinct(expressions=[field("fa_unit")]))
            made.append(select(*self.line(UNITS, n=count)).from_("foldaway_good"))
        centers = [field(mean) for _, mean, _ in self.columns]
        made.append(select(*self.line(CENTERS, arm=field("fa_of"), values=centers)).from_("foldaway_centers"))
        for place, part in enumerate(self.parts):
            made += self.lines_of(part, f"foldaway_cells_{place}")
        return reduce(lambda one, two: one.union(two, distinct=False, copy=False), made)

    def lines_of(self, part: AnswerPart, cells: str) -> list[exp.Select]:
        """Those of a part: by arm and group, and for sums of second order by arm."""
        keys: dict[str, Expression] = {"arm": field("fa_arm_key")}
        if part.segment >= 0 or part.kind == "exits":
            keys["level"] = cast(field("fa_level_key"), "text")
        if part.kind in ("strata", "bins", "exits"):
            keys["place"] = field("fa_place_key")
        group = field("fa_grp_key") if self.plan.grouped and part.kind != BASELINE else ZERO
        first = len(by_group(part.shape)) if part.shape is not None else 2 * (self.weight(part) is not None)
        values = [field(f"fa_s{place}") for place in range(first)]
        made = [select(*self.line(part.name, **keys, grp=group, n=field("fa_n"), values=values)).from_(cells)]
        if part.shape is not None:
            second = [exp.Sum(this=field(f"fa_s{first + place}")) for place in range(len(by_arm(part.shape)))]
            n = exp.Sum(this=field("fa_n"))
            chosen = self.line(part.name, **keys, grp=exp.Neg(this=exp.Literal.number(1)), n=n, values=second)
            made.append(select(*chosen).from_(cells).group_by(*(field(f"fa_{name}_key") for name in keys)))
        return made

    def line(
        self,
        part: str,
        *,
        level: Expression | None = None,
        arm: Expression = ZERO,
        place: Expression = ZERO,
        grp: Expression = ZERO,
        n: Expression = ZERO,
        values: Sequence[Expression] = (),
    ) -> list[Expression]:
        """The columns of lines; numbers that there are not are 0. Those of the first line fix the types."""
        first = part == HEAD
        given = {"part": literal(part), "level": literal("") if level is None else level}
        chosen = [named(cast(value, "text") if first else value, name) for name, value in given.items()]
        wholes = {"arm": arm, "place": place, "grp": grp, "n": n}
        chosen += [
            named(cast(value, "bigint") if first or name == "n" else value, name) for name, value in wholes.items()
        ]
        numbers: list[Expression] = [exp.Coalesce(this=value, expressions=[number(0)]) for value in values]
        numbers += [cast(number(0), "double") if first else number(0)] * (numbers_in(self.plan) - len(values))
        return chosen + [named(value.copy(), f"s{at}") for at, value in enumerate(numbers)]
