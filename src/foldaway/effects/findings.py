"""What a trial found, as data: one row per outcome, arm, estimator and kind of standard error."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import msgspec

from foldaway.effects.baseline import BaselineTable
from foldaway.effects.curves import Curves
from foldaway.effects.effect import Effect
from foldaway.effects.flow import FlowDiagram
from foldaway.effects.looks_taken import Look
from foldaway.effects.segment import BySegment, Segments
from foldaway.effects.tabular import Tabular
from foldaway.errors import EstimateError
from foldaway.inference.differing import JointTest
from foldaway.inference.loss import Loss
from foldaway.inference.sample_ratio import SampleRatio
from foldaway.plan import Plan
from foldaway.plan.reported import errors_of, estimators_of
from foldaway.records.faults import Fault


@dataclass(eq=False, repr=False)
class Findings(Sequence[Effect], Tabular):
    """The effects of a trial, with the checks that say whether to trust them; `Effects` shows them to people.

    Attributes:
        rows: The effects.
        trial: The trial's name.
        confidence: Coverage of the intervals.
        counts: Records folded, by arm.
        sample_ratio: Whether these counts fit the plan's probabilities.
        dropped: Faulty records left out, by arm ("" for records without a known arm).
        faults: Why, by arm, column and rule.
        losses: For each outcome that records may lack, and for faulty records, how many each arm lost, and a test of
            whether the arms lost different shares.
        alarm: What to read before any effect: that the arms' counts do not fit the plan's probabilities, that the arms
            lost different shares, or that too many records were dropped.
        notes: What else the reader should know.
        rounded: Whether they are told to others, and so rounded that no person's value can be worked out.
        final: Whether the trial has ended: no more records come. What is stored of it stays as it was told, and becomes
            final when it is read.
        plan: The plan that asked for them.
        joint: Where there are several arms, by outcome a test of whether any of them differs from the control.
        segments: Effects within the levels of the plan's segments, and whether they differ: a table like this one.
        looks: The planned looks that were taken, and what each found.
        curves: Of survival outcomes, the arms' curves and how their hazards compare.
        baseline: The table of baseline characteristics, if the plan has a `baseline`.
        flow: Who was assessed, randomised, lost and analysed, if the plan asks for it by `flow`, or it was given at the
            end.
    """

    rows: Sequence[Effect]
    _: KW_ONLY
    trial: str
    confidence: float
    counts: dict[str, int]
    sample_ratio: SampleRatio
    dropped: dict[str, int]
    faults: Sequence[Fault]
    losses: Sequence[Loss] = ()
    alarm: str | None = None
    notes: Sequence[str] = ()
    rounded: bool = False
    final: bool = False
    plan: Plan
    joint: dict[str, JointTest] = dataclasses.field(default_factory=dict)
    segments: Sequence[BySegment] = Segments()
    looks: Sequence[Look] = ()
    curves: Sequence[Curves] = ()
    baseline: BaselineTable = dataclasses.field(default_factory=BaselineTable)
    flow: FlowDiagram | None = None

    def __post_init__(self) -> None:
        self.rows, self.faults, self.notes = tuple(self.rows), tuple(self.faults), tuple(self.notes)
        self.losses, self.segments, self.looks = tuple(self.losses), Segments(self.segments), tuple(self.looks)
        self.curves, self.baseline = tuple(self.curves), BaselineTable(self.baseline)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Effect]:
        return iter(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return replace(self, rows=self.rows[index]) if isinstance(index, slice) else self.rows[index]

    def filter(self, **wanted: str) -> Self:
        """The rows whose fields have these values, for example ``estimator="regression", se_kind="HC1"``.

        Raises:
            EstimateError: There is no such field, or no effect of this plan has such a value.
        """
        unknown = [field for field in wanted if field not in Effect.__struct_fields__]
        if unknown:
            raise EstimateError(f"an effect has no field {', '.join(unknown)}.")
        for field, value in wanted.items():
            there = list(dict.fromkeys(getattr(row, field) for row in self))
            if self and value not in there and value not in self._possible(field):
                raise EstimateError(f"no effect has the {field} {value!r}; there are {', '.join(map(str, there))}.")
        return replace(self, rows=[row for row in self if all(getattr(row, f) == v for f, v in wanted.items())])

    def _possible(self, field: str) -> list[str]:
        """The values that the plan allows for a field, whether one of these rows has them or not."""
        possible = {
            "outcome": [outcome.name for outcome in self.plan.outcomes],
            "arm": list(self.plan.arms),
            "control": list(self.plan.arms),
            "estimator": estimators_of(self.plan),
            "se_kind": errors_of(self.plan),
        }
        return possible.get(field, [])

    def heading(self, outcome: str) -> str:
        """What people read in place of an outcome's name."""
        return self.plan.outcome(outcome).heading

    def to_dicts(self) -> list[dict[str, Any]]:
        """One flat dict per row."""
        return [msgspec.structs.asdict(row) for row in self]

    def _fields(self) -> dict[str, str]:
        return Effect.__annotations__

    def to_sql(self, connection: Any, table: str) -> None:
        """Append one line per row to a table of a database, and commit.

        Each line also has the ``trial``'s name, the plan's ``fingerprint``, and ``written_at``, the time in UTC. The
        table is created if it does not exist.

        Args:
            connection: A connection by Python's DB-API, such as one of psycopg, DuckDB or sqlite3.
            table: The table's name, after its schema's and a dot if it is not in the usual one.

        Raises:
            SourceError: The database refuses it.

        Example:
            >>> import sqlite3
            >>> import foldaway as fa
            >>> trial = fa.Trial(fa.Plan(name="demo", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"]))
            >>> trial.fold({"g": ["a", "b"] * 300, "y": [float(i % 7) for i in range(600)]})
            >>> with sqlite3.connect(":memory:") as connection:
            ...     trial.told().to_sql(connection, "effects")
            ...     connection.execute("select trial, outcome, n from effects").fetchall()
            [('demo', 'y', 600)]
        """
        from foldaway.effects.to_sql import append_to

        append_to(connection, table, self, self.trial, self.plan.fingerprint)

    def __repr__(self) -> str:
        return f"Effects: {self.trial} | n={sum(self.counts.values()):_} | rows={len(self)}"
