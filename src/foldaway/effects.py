"""Effects: what a trial found, one row per outcome, arm, estimator and kind of standard error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from foldaway.errors import EstimateError
from foldaway.inference.sample_ratio import SampleRatio
from foldaway.inference.several import ADJUSTMENTS
from foldaway.records.faults import Fault
from foldaway.table import html_table, number, text_table

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

# Which kind of error a printed table shows when there are several, best first.
_SHOWN = ("CR1", "bootstrap", "HC2", "HC1")


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """One estimate of the effect of an arm, against the control, on an outcome.

    ``relative`` is the effect as a share of the control's level, its interval by the delta method. The
    ``anytime`` interval stays valid however often one looks (Waudby-Smith et al. 2024). Rows of the bootstrap also have
    percentile intervals, the p-value that inverts them, and the number of replicates behind them.
    """

    outcome: str
    arm: str
    control: str
    estimator: str
    se_kind: str
    n: int
    n_arm: int
    n_control: int
    estimate: float
    std_error: float
    statistic: float
    df: float
    p_value: float
    p_adjusted: float | None
    ci_lower: float
    ci_upper: float
    control_level: float
    relative: float
    relative_std_error: float
    relative_ci_lower: float
    relative_ci_upper: float
    anytime_ci_lower: float
    anytime_ci_upper: float
    percentile_ci_lower: float | None = None
    percentile_ci_upper: float | None = None
    percentile_p_value: float | None = None
    relative_percentile_ci_lower: float | None = None
    relative_percentile_ci_upper: float | None = None
    replicates: int | None = None
    replicates_left_out: int | None = None


class Effects(Sequence[Effect]):
    """The effects of a trial, with the checks that say whether to trust them.

    Attributes:
        trial: The trial's name.
        confidence: Coverage of the intervals.
        counts: Records folded, by arm.
        sample_ratio: Whether these counts fit the plan's probabilities.
        dropped: Faulty records left out, by arm ("" for records without a known arm).
        faults: Why, by arm, column and rule.
        notes: What the reader should know: withheld rows, warnings.
    """

    def __init__(
        self,
        rows: Sequence[Effect],
        *,
        trial: str,
        confidence: float,
        counts: Mapping[str, int],
        sample_ratio: SampleRatio,
        dropped: Mapping[str, int],
        faults: Sequence[Fault],
        notes: Sequence[str],
    ) -> None:
        self._rows = tuple(rows)
        self.trial = trial
        self.confidence = confidence
        self.counts = dict(counts)
        self.sample_ratio = sample_ratio
        self.dropped = dict(dropped)
        self.faults = tuple(faults)
        self.notes = tuple(notes)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Effect]:
        return iter(self._rows)

    def __getitem__(self, index: Any) -> Any:
        return self._with(self._rows[index]) if isinstance(index, slice) else self._rows[index]

    def filter(self, **wanted: str) -> Effects:
        """The rows whose fields have these values, for example ``estimator="regression", se_kind="HC1"``."""
        unknown = [field for field in wanted if field not in Effect.__struct_fields__]
        if unknown:
            raise EstimateError(f"an effect has no field {', '.join(unknown)}.")
        return self._with([row for row in self if all(getattr(row, f) == v for f, v in wanted.items())])

    def adjusted(self, method: str) -> Effects:
        """With p-values adjusted over arms and outcomes, for each estimator and kind of error apart."""
        if method not in ADJUSTMENTS:
            raise EstimateError(f"there is no adjustment {method!r}; there are {', '.join(ADJUSTMENTS)}.")
        families: dict[tuple[str, str], list[int]] = {}
        for i, row in enumerate(self):
            families.setdefault((row.estimator, row.se_kind), []).append(i)
        rows = list(self)
        for members in families.values():
            adjusted = ADJUSTMENTS[method](np.array([rows[i].p_value for i in members]))
            for i, p in zip(members, adjusted, strict=True):
                rows[i] = msgspec.structs.replace(rows[i], p_adjusted=float(p))
        return self._with(rows)

    def _with(self, rows: Sequence[Effect]) -> Effects:
        about = {name: value for name, value in vars(self).items() if name != "_rows"}
        return Effects(rows, **about)

    def to_dicts(self) -> list[dict[str, Any]]:
        """One flat dict per row."""
        return [msgspec.structs.asdict(row) for row in self]

    def to_arrow(self) -> pyarrow.Table:
        """An Arrow table."""
        import pyarrow as pa

        kinds = {"str": pa.string(), "int": pa.int64()}
        fields = [
            (f.name, kinds.get(getattr(f.type, "__name__", ""), pa.float64())) for f in msgspec.structs.fields(Effect)
        ]
        return pa.Table.from_pylist(self.to_dicts(), schema=pa.schema(fields))

    def to_pandas(self) -> pandas.DataFrame:
        """A pandas data frame."""
        frame: pandas.DataFrame = self.to_arrow().to_pandas()
        return frame

    def to_polars(self) -> polars.DataFrame:
        """A polars data frame."""
        import polars as pl

        return pl.DataFrame(self.to_arrow())

    def to_json(self) -> str:
        """Everything, for machines; numbers that do not exist are null."""
        about = {
            "trial": self.trial,
            "confidence": self.confidence,
            "counts": self.counts,
            "sample_ratio": self.sample_ratio,
            "dropped": self.dropped,
            "faults": [msgspec.structs.asdict(fault) for fault in self.faults],
            "notes": self.notes,
            "effects": self.to_dicts(),
        }
        return msgspec.json.encode(about).decode()

    def to_string(self, *, all_kinds: bool = False) -> str:
        """A table per comparison, with one kind of standard error per estimator unless all are asked for."""
        parts = [self._headline()]
        for (outcome, arm, control), rows in self._comparisons(all_kinds).items():
            parts.append(f"{outcome}: {arm} against {control}\n" + text_table(self._header(), rows, left=2))
        parts += [f"{'!' if i < self._alarms else '·'} {note}" for i, note in enumerate(self.notes)]
        return "\n\n".join(parts)

    def to_html(self, *, all_kinds: bool = False) -> str:
        """The same as HTML."""
        tables = [
            html_table(self._header(), rows, f"{outcome}: {arm} against {control}")
            for (outcome, arm, control), rows in self._comparisons(all_kinds).items()
        ]
        notes = html_table(["notes"], [[note] for note in self.notes]) if self.notes else ""
        return f"<div><p>{self._headline()}</p>{''.join(tables)}{notes}</div>"

    def __str__(self) -> str:
        return self.to_string()

    def __repr__(self) -> str:
        return f"Effects: {self.trial} | n={sum(self.counts.values()):_} | rows={len(self)}"

    def _repr_html_(self) -> str:
        return self.to_html()

    def _headline(self) -> str:
        counts = ", ".join(f"{arm} {n:,}" for arm, n in self.counts.items())
        return f"{self.trial}: {sum(self.counts.values()):,} records ({counts})"

    def _header(self) -> list[str]:
        interval = f"{100 * self.confidence:g} % interval"
        adjusted = ["p adj."] if any(row.p_adjusted is not None for row in self) else []
        return ["estimator", "error", "effect", interval, "p", *adjusted, "relative", "at any time"]

    @property
    def _alarms(self) -> int:
        return 0 if self.sample_ratio.ok else 1

    def _comparisons(self, all_kinds: bool) -> dict[tuple[str, str, str], list[list[str]]]:
        """The rows to show as cells, by comparison."""
        shown: dict[tuple[str, str, str], list[list[str]]] = {}
        for row in self:
            if all_kinds or row.se_kind == self._best_kind(row):
                shown.setdefault((row.outcome, row.arm, row.control), []).append(self._cells(row))
        return shown

    def _best_kind(self, row: Effect) -> str:
        kinds = [other.se_kind for other in self if _same_estimate(row, other)]
        return next((kind for kind in _SHOWN if kind in kinds), kinds[0])

    def _cells(self, row: Effect) -> list[str]:
        adjusted = [] if row.p_adjusted is None else [p_text(row.p_adjusted)]
        return [
            row.estimator,
            row.se_kind,
            number(row.estimate),
            interval_text(row.ci_lower, row.ci_upper),
            p_text(row.p_value),
            *adjusted,
            f"{100 * row.relative:+.2f} %" if np.isfinite(row.relative) else "-",
            interval_text(row.anytime_ci_lower, row.anytime_ci_upper),
        ]


def interval_text(lower: float, upper: float) -> str:
    """An interval for a person.

    Example:
        >>> interval_text(-0.123456, 2.5)
        '[-0.1235, 2.5000]'
    """
    if not (np.isfinite(lower) and np.isfinite(upper)):
        return "-"
    return f"[{number(lower)}, {number(upper)}]"


def p_text(p: float) -> str:
    """A p-value for a person.

    Example:
        >>> p_text(1e-9), p_text(0.03456)
        ('<0.001', '0.035')
    """
    if not np.isfinite(p):
        return "-"
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def _same_estimate(row: Effect, other: Effect) -> bool:
    return (row.outcome, row.arm, row.estimator) == (other.outcome, other.arm, other.estimator)
