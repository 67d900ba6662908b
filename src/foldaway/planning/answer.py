"""What a question about power came to: rows for machines, a table for people, a plot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from foldaway.effects.numbers import in_lines, percent_text, signed
from foldaway.effects.plot import BAR, INK, panels
from foldaway.errors import many
from foldaway.planning.comparing import GUARDING, Comparing, Planned, Wanted
from foldaway.table import ABSENT, html_table, number, text_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 80

# Sizes at which a curve is computed, where that is quick and where it takes longer.
_POINTS, _FEW = 40, 12

T = TypeVar("T", int, float)


@dataclass(frozen=True, repr=False)
class Power(Sequence[Planned]):
    """How large a trial must be, or what one of a given size can show: a row for each outcome and arm.

    Attributes:
        rows: The answers.
        wanted: What was asked for: "size", "effect", "margin" or "power".
        confidence: Of the intervals.
        power: The chance that was asked for, where it was given.
        arms: The arms with their shares.
        sequential: Whether one may look as often as one likes.
        notes: What else the reader should know.
        comparisons: What the rows were computed from.
        looks: How many looks are planned; 0 if there is only one, or any number.
    """

    rows: tuple[Planned, ...]
    wanted: Wanted
    confidence: float
    power: float
    arms: dict[str, float]
    sequential: bool = False
    notes: tuple[str, ...] = ()
    comparisons: tuple[Comparing, ...] = ()
    looks: int = 0

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    @property
    def records(self) -> int | None:
        """Records of the whole trial that are enough for every row; None if no number is."""
        return _largest([row.records for row in self.rows])

    @property
    def units(self) -> int | None:
        """The same in units, where it is known how many records these have."""
        return _largest([row.units for row in self.rows])

    @property
    def days(self) -> float | None:
        """The same in days, where it is known how many come in a day."""
        return _largest([row.days for row in self.rows])

    def to_dicts(self) -> list[dict[str, Any]]:
        """One flat dict per row."""
        return [msgspec.structs.asdict(row) for row in self.rows]

    def to_dict(self) -> dict[str, Any]:
        """Everything, for machines."""
        about = {
            name: getattr(self, name)
            for name in ("wanted", "confidence", "power", "sequential", "arms", "records", "units", "days", "notes")
        }
        return {**about, "rows": self.to_dicts()}

    def to_json(self) -> str:
        """The same as JSON."""
        return msgspec.json.encode(self.to_dict()).decode()

    def to_string(self) -> str:
        """A sentence, a table that fits 80 columns, and notes."""
        first = "\n".join(in_lines(sentence) for sentence in self._headline())
        notes = "\n".join(in_lines(f"· {note}", "  ") for note in self._remarks())
        return "\n\n".join(filter(None, (first, text_table(*self._table(), left=2), notes)))

    def to_html(self) -> str:
        """The same as HTML."""
        before, after = (
            "".join(f"<p>{escape(each)}</p>" for each in part) for part in (self._headline(), self._remarks())
        )
        return f"<div>{before}{html_table(*self._table())}{after}</div>"

    __str__ = to_string
    _repr_html_ = to_html

    def _remarks(self) -> list[str]:
        """Why numbers are missing, and the notes."""
        return [*dict.fromkeys(row.why for row in self.rows if row.why), *self.notes]

    def plot(self) -> Figure:
        """The chance by size, or the smallest effect by size, by matplotlib (``pip install foldaway[plot]``).

        Each row has a panel with the curve, and the row's own point on it. Where size, effect and margin are given, the
        curve is that of the chance. No window opens, and nothing of matplotlib's global state changes: works without a
        screen.

        Raises:
            ValueError: There is nothing to draw.
        """
        drawn = [pair for pair in zip(self.rows, self.comparisons, strict=True) if pair[0].why is None]
        if not drawn:
            raise ValueError("there is nothing to draw.")
        figure = panels([2.6] * len(drawn))
        for axes, (row, comparing) in zip(figure.axes, drawn, strict=True):
            self._draw(axes, row, comparing)
        return figure

    def _draw(self, axes: Axes, row: Planned, comparing: Comparing) -> None:
        from matplotlib.ticker import LogLocator

        assert row.records is not None
        assert row.effect is not None
        few = row.wanted in ("effect", "margin")
        sizes = np.geomspace(row.records / 8, row.records * 4, _FEW if few else _POINTS)
        heights: list[float | None]
        match row.wanted:
            case "effect":
                heights, point = [comparing.effect(size, row.margin, self.power) for size in sizes], row.effect
            case "margin":
                heights, point = [comparing.margin(size, row.effect, self.power) for size in sizes], row.margin
            case _:
                assert row.power is not None
                heights, point = [comparing.chance(size, row.effect, row.margin) for size in sizes], row.power
                axes.set_ylim(0, 1.02)
        chance = f"chance of “{row.goal}”" if row.goal in GUARDING else f"chance, effect {row.effect:.3g}"
        label = f"smallest {row.wanted}" if few else chance
        axes.plot(sizes, [np.nan if each is None else each for each in heights], color=BAR, linewidth=3)
        axes.plot(row.records, point, "o", color=INK, markersize=6, markeredgecolor="white", zorder=3)
        axes.axvline(row.records, color="0.4", linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.minorticks_off()
        axes.set_xlabel("records of the whole trial", fontsize="small")
        axes.set_ylabel(label, fontsize="small")
        # A dollar sign in a name is a dollar sign, and begins no formula.
        title = f"{row.outcome}: {row.arm} against {row.control}"
        axes.set_title(title, loc="left", fontsize="medium", fontweight="bold", parse_math=False)
        axes.spines[["top", "right"]].set_visible(False)

    def __repr__(self) -> str:
        return f"Power: {self.wanted} | records={self.records} | rows={len(self)}"

    def _headline(self) -> list[str]:
        size, several = self._size(), sum(row.wanted == self.wanted for row in self.rows) > 1
        plain = all(row.goal == "different" for row in self.rows)
        what = (
            f"finds {'each' if several else 'the'} effect" if plain else f"reaches {'each' if several else 'its'} goal"
        )
        looks = "however often you look" if self.sequential else "in a single look at the end"
        looks = f"by {many(self.looks, 'planned look')}" if self.looks else looks
        held = f"at {100 * self.confidence:g} % confidence, {looks}"
        chance = f"a chance of {100 * self.power:g} %"
        if size is None:
            return ["No trial is large enough for every row."]
        match self.wanted:
            case "size":
                return [f"The trial needs {size}.", f"With {chance} it then {what} {held}."]
            case "power":
                return [f"The trial would have {size}.", f"The table has the chance that it {what} {held}."]
            case _:
                smallest = f"the smallest {self.wanted}{'s' if several else ''}"
                found = f"The table has {smallest} that it shows with {chance} {held}."
                return [f"The trial would have {size}.", found, *self._given()]

    def _given(self) -> list[str]:
        """What the rows have that are not asked for a smallest effect or margin."""
        effects = [row.effect for row in self.rows if row.wanted == "power"]
        if not effects:
            return []
        given = "with the effect shown" if any(effects) else "if there is no effect"
        return [f"Where a row has a chance, that is the chance of reaching its goal {given}."]

    def _size(self) -> str | None:
        if self.records is None:
            return None
        parts = [many(self.records, "record")]
        if self.units is not None and self.units != self.records:
            parts = [f"{many(self.units, 'unit')} with {many(self.records, 'record')}"]
        if self.days is not None:
            parts.append(f"about {many(_days(self.days), 'day')}")
        shares = ", ".join(f"{arm} {100 * share:.3g} %" for arm, share in self.arms.items())
        return f"{', '.join(parts)} ({shares})"

    def _effect(self, row: Planned) -> str:
        """The effect as text; among smallest effects there is none where no effect is assumed."""
        if row.effect == 0:
            return ABSENT if self.wanted == "effect" else "0"
        return signed(number(row.effect, 3))

    def _table(self) -> tuple[list[str], list[list[str]]]:
        rows = self.rows
        columns: dict[str, list[str]] = {
            "outcome": [row.outcome for row in rows],
            "arm": [row.arm for row in rows],
            "control": [number(row.level) for row in rows],
            "effect": [self._effect(row) for row in rows],
            "relative": [percent_text(row.relative or None) for row in rows],
        }
        if any(row.goal != "different" for row in rows):
            columns["goal"] = [row.goal for row in rows]
            columns["margin"] = [number(row.margin, 3) if row.goal != "different" else ABSENT for row in rows]
        if any(row.wanted == "power" for row in rows):
            chances = [row.power if row.wanted == "power" else None for row in rows]
            columns["chance"] = [ABSENT if each is None else f"{100 * each:.1f} %" for each in chances]
        if self.wanted == "size":
            columns["records"] = [number(row.records) for row in rows]
            if any(row.units not in (row.records, None) for row in rows):
                columns["units"] = [number(row.units) for row in rows]
            if any(row.days is not None for row in rows):
                columns["days"] = [ABSENT if row.days is None else f"{_days(row.days):,}" for row in rows]
        for name in ("relative", "control"):
            if sum(max(map(len, [head, *cells])) + 2 for head, cells in columns.items()) - 2 > WIDTH:
                del columns[name]
        return list(columns), [list(cells) for cells in zip(*columns.values(), strict=True)]


def _days(days: float) -> int:
    return math.ceil(days - 1e-9)


def _largest(values: Sequence[T | None]) -> T | None:
    known = [value for value in values if value is not None]
    return max(known) if known and len(known) == len(values) else None
