"""The answer of a database that has summed records where they lie: how its lines are laid out, and what they come to.

All lines have the same columns. `part` says what a line is of: sums, those by stratum or a histogram, of all records or
of a segment; or a histogram of exits by stratum. `arm`, `level` (of the segment, or the stratum of an exit), `place`
(the stratum or bin) and `grp` say which cell; -1 in the place of
a group stands for all of them, since sums of second order are by arm. `n` is a number of records, and `s0`, `s1`, …
are the cell's further numbers in the order of `layout`. A first line says of which plan and statement the answer is,
and under which group key; further parts count units and faulty records. So that an answer cut short or altered shows,
each line has the number of lines, and the sum of its own numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldaway.errors import RecordError, SourceError, instead_of
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.plan.outcomes import Binning
from foldaway.records import Fault, Faults
from foldaway.records.check import MOST_LEVELS
from foldaway.records.columns import Column, columns_of
from foldaway.records.faults import CLIPPED, NO_ARM
from foldaway.records.values import (
    BEYOND,
    INFINITE,
    NAN,
    NOT_POSITIVE,
    NULL,
    TOO_LARGE,
    WRONG_TYPE,
    numbers,
)
from foldaway.tallies.baseline import BaselineTallies, traits_shape
from foldaway.tallies.grouped import Grouped
from foldaway.tallies.histogram import Histogram
from foldaway.tallies.holding import lean_cells
from foldaway.tallies.lean import Lean
from foldaway.tallies.levels import OTHER, identity, marked_name
from foldaway.tallies.segment import SegmentTallies
from foldaway.tallies.sums import ARRAYS, Sums, SumsShape

TEXTS = ("part", "level")
KEYS = (*TEXTS, "arm", "place", "grp", "n")
"""The columns that say which cell a line is of, and its number of records."""

BESIDE = ("total", "lines")
"""The columns by which a changed answer shows."""

BASELINE = "baseline"
"""The kind of part that has the sums of the baseline's traits, by arm and without groups."""

HEAD, UNITS, FAULTS, CENTERS = "answer", "units", "faults", "centers"
"""The parts that are no cells."""

TEXT = "text"
"""The rule by which text in a characteristic without levels is counted: the answer is then refused."""

MARK = 16
"""So many hexadecimal digits of a hash of the plan's fingerprint under the group key tell which key it was."""

NAMED = ":"
"""What comes before the name of a level that the plan does not list."""

NOT_ADJUSTED = (
    "the plan has covariates and no coefficients, and sums of outcomes alone cannot be adjusted afterwards; find "
    "coefficients from records of before the trial: `plan.calibrated`, or `foldaway plan calibrate`."
)

_OFF = 1e-9

_BY_GROUP = ("present", "weight", "total")
_BY_ARM = ("mass", "first", "square", "cross", "absolute", "joint")

Index = tuple[int, ...]


class AnswerPart(NamedTuple):
    """What some lines are of.

    Attributes:
        kind: ``"sums"``, ``"strata"`` (sums by stratum), ``"bins"`` (a histogram), ``"exits"`` (one by stratum) or
            ``"baseline"`` (sums of traits).
        segment: Of which of the plan's segments; -1 is all records.
        shape: Of the sums; None of a histogram.
        bins: Those of a histogram.
        number: Which of the plan's histograms.
        groups: How many groups there are.
    """

    kind: str
    segment: int
    shape: SumsShape | None
    bins: Binning | None = None
    number: int = 0
    groups: int = 1

    @property
    def within_strata(self) -> bool:
        """Whether it is by stratum."""
        return self.kind in ("strata", "exits")

    @property
    def name(self) -> str:
        """What the lines call it."""
        return f"{self.kind} {self.number} of {self.segment + 1}"


def parts_of(plan: Plan) -> Iterator[AnswerPart]:
    """The parts that an answer for this plan has, beside those that are no cells."""
    if plan.baseline:
        yield AnswerPart(BASELINE, -1, traits_shape(plan))
    for segment in range(-1, len(plan.segments)):
        cells = _empty(plan, segment, [""])
        yield AnswerPart("sums", segment, cells.sums.shape, groups=cells.sums.shape.groups)
        if cells.strata is not None:
            shape = cells.strata.plain().shape
            yield AnswerPart("strata", segment, shape, groups=shape.groups)
        for number, (bins, histogram) in enumerate(zip(plan.bins, cells.histograms, strict=True)):
            yield AnswerPart("bins", segment, None, bins, number, histogram.shape.groups)
        if cells.strata is not None:
            for number, histogram in zip(plan.exits_by_stratum, cells.strata.histograms, strict=False):
                yield AnswerPart("exits", segment, None, plan.bins[number], number, histogram.shape.groups)


def _empty(plan: Plan, segment: int, levels: Sequence[str]) -> Lean:
    """Sums of no records: of a segment, or of all records for -1."""
    return lean_cells(plan, None if segment < 0 else plan.segments[segment], levels, NOT_ADJUSTED)


def by_group(shape: SumsShape) -> list[tuple[str, Index]]:
    """The sums that are by arm and group, beside the number of records: array and index."""
    return _entries(shape, _BY_GROUP, 2)


def by_arm(shape: SumsShape) -> list[tuple[str, Index]]:
    """The sums that are by arm; without weights some are those of others."""
    return _entries(shape, _BY_ARM if shape.weighted else _BY_ARM[2:], 1)


def _entries(shape: SumsShape, names: Sequence[str], axes: int) -> list[tuple[str, Index]]:
    sizes = {name: size for name in names if (size := shape.sizes[name]) is not None}
    return [(name, index) for name, size in sizes.items() for index in np.ndindex(*size[axes:])]


def faults_of(plan: Plan) -> list[tuple[str, str]]:
    """The columns and rules that the lines of faulty records count, in their order."""
    numeric = dict.fromkeys((*plan.covariates, *plan.measured, *plan.baseline))
    stratum = None if plan.strata is None else plan.strata.column
    listed = [name for name in numeric if plan.levels_of(name)]
    rules = [(plan.arm, NULL), (plan.arm, "unknown arm")]
    for name in numeric:
        if name in listed:
            continue
        absent = () if name in plan.lackable | plan.shown_alone else (NULL, NAN)
        wrong = TEXT if name in plan.unlisted_characteristics else WRONG_TYPE
        bounded = [CLIPPED if plan.limits[name].beyond == "clip" else BEYOND] if name in plan.limits else []
        own = [domain.rule for domain in plan.domains.get(name, ())]
        rules += [(name, rule) for rule in (*absent, INFINITE, TOO_LARGE, wrong, *own, *bounded)]
    if plan.weight is not None:
        rules += [(plan.weight, rule) for rule in (NULL, NAN, INFINITE, TOO_LARGE, WRONG_TYPE, NOT_POSITIVE)]
    for name in dict.fromkeys((*listed, *([] if stratum is None else [stratum]), *plan.segments)):
        unknown = "unknown stratum" if name == stratum else "unknown level"
        own_rules = [*([] if name in plan.shown_alone else [NULL]), *([unknown] if plan.levels_of(name) else [])]
        rules += [(name, rule) for rule in own_rules]
    for column in dict.fromkeys(filter(None, (plan.unit, plan.cluster))):
        rules += [(column, NULL), (column, WRONG_TYPE)]
    return rules


def numbers_in(plan: Plan) -> int:
    """How many columns of further numbers there are."""
    sizes = [len(faults_of(plan)), 2 * plan.weighted, _empty(plan, -1, [""]).sums.shape.columns + len(plan.traits)]
    for shape in (part.shape for part in parts_of(plan) if part.shape is not None):
        sizes += [len(by_group(shape)), len(by_arm(shape))]
    return max(sizes)


def columns_of_numbers(plan: Plan) -> list[str]:
    """The columns of an answer that hold numbers, in their order."""
    return [*KEYS[len(TEXTS) :], *(f"s{place}" for place in range(numbers_in(plan))), *BESIDE]


class QueryAnswer(NamedTuple):
    """What an answer comes to.

    Attributes:
        cells: The tallies.
        faults: The faulty records, which were left out.
        units: How many different units there are.
        statement: The digest of the statement.
    """

    cells: Lean
    faults: Faults
    units: int
    statement: str


def read_answer(answer: Any, plan: Plan, group_key: str, levels_key: bytes) -> QueryAnswer:
    """The tallies of an answer.

    Args:
        answer: A pandas, polars, pyarrow or DuckDB table, a dict of columns, or a list of dicts.
        plan: The plan.
        group_key: The group key.
        levels_key: What levels of segments that the plan does not list are marked under.

    Raises:
        SourceError: It is none, is damaged, or is of another plan or key.
    """
    mark = sha256(f"{group_key}{plan.fingerprint}".encode()).hexdigest()[:MARK]
    lines = _Lines(answer, plan, mark)
    whole, segments = lines.cells(-1, [""]), []
    for place, column in enumerate(plan.segments):
        if listed := plan.levels_of(column):
            cells = lines.cells(place, [str(code) for code in range(len(listed))])
            segments.append(SegmentTallies[Grouped](tuple(listed), cells))
            continue
        names = lines.levels_of(place)[:MOST_LEVELS]
        entries = [marked_name(levels_key, column, name.removeprefix(NAMED)) for name in names]
        marks = tuple(map(identity, entries))
        segments.append(SegmentTallies[Grouped]((OTHER, *marks), lines.cells(place, [OTHER, *names])).learnt(entries))
    cells = replace(whole, segments=tuple(segments), baseline=lines.baseline() if plan.baseline else None)
    beside = [] if cells.baseline is None else [cells.baseline.n]
    beside += [segment.cells.n for segment in segments] + ([] if cells.strata is None else [cells.strata.n])
    if any(n != cells.n for n in beside):
        raise _damaged("its parts count different numbers of records")
    return QueryAnswer(cells, lines.faults(), lines.units(), lines.statement)


class _Lines:
    """The lines, as arrays of numbers, once they are known to be whole and of this plan."""

    def __init__(self, answer: Any, plan: Plan, mark: str) -> None:
        self.plan = plan
        wanted = columns_of_numbers(plan)
        with instead_of(RecordError, _no_answer):
            columns, count, others = columns_of(answer, [*TEXTS, *wanted])
        if not count or others:
            raise SourceError(
                "the answer is empty; that of a statement of `plan.sql` has a first line whatever the records are. "
                "Nothing was folded."
            )
        self.part, self.level = (["" if text is None else str(text) for text in _listed(columns[at])] for at in TEXTS)
        self.arm, self.place, self.group, self.n = (_whole(columns[name]) for name in ("arm", "place", "grp", "n"))
        cells = [_floats(columns[name]) for name in wanted if name not in (*KEYS, *BESIDE)]
        self.values = np.stack(cells, axis=1)
        size = np.abs(self.n) + np.abs(self.values).sum(axis=1)
        away = np.abs(self.n + self.values.sum(axis=1) - _floats(columns["total"]))
        if np.any(_whole(columns["lines"]) != count):
            raise _damaged("it does not have as many lines as it had")
        if np.any(away > _OFF * size):
            raise _damaged("its numbers do not add up to its totals")
        self.statement = self._head(mark)
        size, at = _empty(plan, -1, [""]).sums.shape.columns, self._of(CENTERS)
        centers = np.zeros((len(plan.arms), size + len(plan.traits)))
        centers[self._within(self.arm[at], len(plan.arms))] = self.values[at, : centers.shape[1]]
        self.center, self.center_of_traits = np.split(centers, [size], axis=1)

    def _head(self, mark: str) -> str:
        heads = [level.split() for part, level in zip(self.part, self.level, strict=True) if part == HEAD]
        if len(heads) != 1 or len(heads[0]) != 3:
            raise _damaged("its first line is not there, or there twice")
        fingerprint, statement, its_mark = heads[0]
        if fingerprint != self.plan.fingerprint:
            raise SourceError(
                "this is the answer of a statement for another plan; nothing was folded. Write the statement anew with "
                "`plan.sql`, or fold the answer into a trial of its own plan."
            )
        if self.plan.grouped and its_mark != mark:
            raise SourceError(
                "the answer was computed under another group key than this trial's, so units would count as two; "
                "nothing was folded. `foldaway sql PLAN --group-key` prints the one that its placeholder stands for."
            )
        return statement

    def _of(self, part: str) -> NDArray[np.intp]:
        return np.flatnonzero([name == part for name in self.part])

    def _within(self, codes: NDArray[np.int64], most: int, least: int = 0) -> NDArray[np.int64]:
        if len(codes) and not (least <= codes.min() and codes.max() < most):
            raise _damaged("it has cells that the plan does not have")
        return codes

    def levels_of(self, segment: int) -> list[str]:
        """The names of a segment's levels, in alphabetical order."""
        parts = {part.name for part in parts_of(self.plan) if part.segment == segment}
        return sorted({level for name, level in zip(self.part, self.level, strict=True) if name in parts})

    def cells(self, segment: int, levels: Sequence[str]) -> Lean:
        """The tallies of all records, or of a segment with these levels; others are among the first."""
        empty = _empty(self.plan, segment, levels)
        sums, strata, histograms = empty.sums, empty.strata, list(empty.histograms)
        exits: list[Histogram] = []
        for part in (each for each in parts_of(self.plan) if each.segment == segment and each.kind != BASELINE):
            at = self._of(part.name)
            places = {level: place for place, level in enumerate(self._strata if part.kind == "exits" else levels)}
            level = np.array([places.get(self.level[line], 0) for line in at], dtype=np.int64)
            arms = len(self.plan.arms)
            cell = level * arms + self._within(self.arm[at], arms)
            self._within(self.group[at], part.groups, -1)
            if part.kind == "bins":
                histograms[part.number] = self._histogram(histograms[part.number], at, cell)
            elif part.kind == "exits":
                assert empty.strata is not None
                exits.append(self._histogram(empty.strata.histograms[len(exits)], at, cell))
            elif part.kind == "sums":
                sums = self._sums(sums.shape, at, cell, self.center)
            else:
                assert strata is not None
                shape = strata.plain().shape
                cell += self._within(self.place[at], shape.arms // (arms * len(levels))) * arms * len(levels)
                strata = Lean(self.plan, self._sums(shape, at, cell, self.center), why=strata.why)
        if strata is not None:
            strata = replace(strata, histograms=tuple(exits))
        return replace(empty, sums=sums, strata=strata, histograms=tuple(histograms))

    def baseline(self) -> BaselineTallies:
        """The sums of the baseline's traits."""
        (part,) = (each for each in parts_of(self.plan) if each.kind == BASELINE)
        assert part.shape is not None
        at = self._of(part.name)
        self._within(self.group[at], part.groups, -1)
        cell = self._within(self.arm[at], len(self.plan.arms))
        return replace(BaselineTallies.empty(self.plan), sums=self._sums(part.shape, at, cell, self.center_of_traits))

    @property
    def _strata(self) -> list[str]:
        """What the lines call the strata: their places in the plan."""
        strata = () if self.plan.strata is None else self.plan.strata.probabilities
        return [str(place) for place in range(len(strata))]

    def _sums(self, shape: SumsShape, at: NDArray[np.intp], cell: NDArray[np.int64], about: Floats) -> Sums:
        arrays = {name: np.zeros(size) for name, size in shape.sizes.items() if size is not None}
        in_group = self.group[at] >= 0
        for lines, entries, index in (
            (at[in_group], by_group(shape), (cell[in_group], self.group[at][in_group])),
            (at[~in_group], by_arm(shape), (cell[~in_group],)),
        ):
            for place, (name, entry) in enumerate(entries):
                np.add.at(arrays[name], (*index, *entry), self.values[lines, place])
        np.add.at(arrays["records"], (cell[in_group], self.group[at][in_group]), self.n[at][in_group])
        by_arm_alone = np.bincount(cell[~in_group], self.n[at][~in_group], shape.arms)
        if not np.array_equal(arrays["records"].sum(axis=1), by_arm_alone):
            raise _damaged("its parts count different numbers of records")
        made = Sums(shape, **{name: arrays.get(name) for name in ARRAYS})  # type: ignore[arg-type]
        if not shape.weighted:
            counts = np.stack([made.counts(outcome).sum(axis=1) for outcome in range(shape.outcomes)], axis=1)
            made = replace(made, mass=counts, first=made.total.sum(axis=1))
        center = np.tile(about, (shape.arms // len(about), 1))
        records = made.records.sum(axis=1)
        level = records @ center / max(records.sum(), 1)
        return replace(made, level=level).about_means(center).settled()

    def _histogram(self, empty: Histogram, at: NDArray[np.intp], cell: NDArray[np.int64]) -> Histogram:
        counts = np.zeros(empty.counts.shape)
        bins = self._within(self.place[at], empty.shape.bins)
        np.add.at(counts, (cell, self.group[at], bins), self.values[at, 0] if empty.shape.weighted else self.n[at])
        squares = None if empty.squares is None else np.zeros(empty.squares.shape)
        if squares is not None:
            np.add.at(squares, (cell, bins), self.values[at, 1])
        return replace(empty, counts=counts, squares=squares)

    def faults(self) -> Faults:
        """The faulty records."""
        at, names = self._of(FAULTS), [*self.plan.arms, NO_ARM]
        arms = [names[code] for code in self._within(self.arm[at], len(names) - 1, -1)]
        text = [place for place, (_, rule) in enumerate(faults_of(self.plan)) if rule == TEXT]
        if (found := self.values[at][:, text].sum(axis=0)).any():
            column, _ = faults_of(self.plan)[text[int(found.argmax())]]
            raise SourceError(
                f"the column {column!r} of `baseline` has text, whose levels no statement finds; nothing was folded. "
                "List its `levels` beside its name in the plan, or fold the rows."
            )
        records = [(arm, int(n)) for arm, n in zip(arms, self.n[at], strict=True) if n]
        reasons = [
            Fault(arm, column, rule, int(count))
            for arm, counts in zip(arms, self.values[at], strict=True)
            for (column, rule), count in zip(faults_of(self.plan), counts, strict=False)
            if count
        ]
        return Faults(records, reasons)

    def units(self) -> int:
        """How many different units there are."""
        return int(self.n[self._of(UNITS)].sum())


def _listed(column: Column) -> list[Any]:
    return column if isinstance(column, list) else column.to_pylist()


def _floats(column: Column) -> Floats:
    values, masks = numbers(column, text=True)
    if masks:
        raise _damaged("it has cells that are no numbers")
    return values


def _whole(column: Column) -> NDArray[np.int64]:
    values = _floats(column)
    if np.any(values != np.floor(values)) or np.any(np.abs(values) > 2**53):
        raise _damaged("its counts do not fit")
    return values.astype(np.int64)


def _damaged(why: str) -> SourceError:
    return SourceError(
        f"the answer is not as the database gave it: {why}. Nothing was folded; run the statement again, and keep all "
        "lines and digits of its answer."
    )


def _no_answer(error: RecordError) -> SourceError:
    return SourceError(
        "this is not the answer of a statement of `plan.sql` for this plan, because it lacks columns of one; nothing "
        "was folded."
    )
