"""Effects: what a trial found, for people: text that fits 80 columns, HTML for notebooks, plots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from textwrap import fill
from typing import TYPE_CHECKING, NamedTuple

from foldaway.effects.effect import Effect
from foldaway.effects.findings import Findings
from foldaway.effects.headline import comparisons
from foldaway.effects.numbers import interval_text, p_relation, p_text, reach_text, relative_reason, relative_text
from foldaway.plan.vocabulary import ESTIMATORS
from foldaway.table import html_table, number, places_for, text_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from foldaway.effects.outlook import Outlook

WIDTH = 80

_LOOKS = (
    "The interval and p are for a single look at the data; “any time” is how far the interval must reach to each side "
    "of the effect if you look more than once."
)


class Effects(Findings):
    """The effects of a trial, with the checks that say whether to trust them."""

    def to_string(self, *, all_kinds: bool = False) -> str:
        """A table per comparison, with one kind of standard error per estimator unless all are asked for."""
        tables = [
            "\n".join(
                [
                    table.title,
                    text_table(table.header, table.rows, left=2),
                    *(fill(f"– {reason}", WIDTH, subsequent_indent="  ") for reason in table.reasons),
                ]
            )
            for table in _tables(self, all_kinds)
        ]
        legend = [fill(_legend(self), WIDTH)] if tables else []
        tables += [fill(sentence, WIDTH) for sentence in _joint_sentences(self)]
        tables += [each.to_string(self.confidence, WIDTH) for each in self.segments]
        first = [fill(f"! {self.alarm}", WIDTH, subsequent_indent="  ")] if self.alarm else []
        last = [fill(f"· {note}", WIDTH, subsequent_indent="  ") for note in self.notes]
        return "\n\n".join([fill(_headline(self), WIDTH), *first, *tables, *legend, *last])

    def to_html(self, *, all_kinds: bool = False) -> str:
        """The same as HTML."""
        tables = [
            html_table(table.header, table.rows, table.title) + _paragraphs(table.reasons)
            for table in _tables(self, all_kinds)
        ]
        legend = [_legend(self)] if tables else []
        tables.append(_paragraphs(_joint_sentences(self)))
        for each in self.segments:
            header, rows = each.table(self.confidence)
            tables.append(html_table(header, rows, each.title) + _paragraphs([*each.reasons, each.summary]))
        alarm = [f"! {self.alarm}"] if self.alarm else []
        before, after = _paragraphs([_headline(self), *alarm]), _paragraphs([*legend, *self.notes])
        return "".join(["<div>", before, *tables, after, "</div>"])

    def plot(self, axes: Axes | None = None, *, estimators: bool = False) -> Figure:
        """A forest plot of the effects and their intervals, by matplotlib (``pip install foldaway[plot]``).

        Args:
            axes: Where to draw one outcome; a new figure with a panel for each outcome if left out.
            estimators: Show every estimator, in place of the one that the report leads with.
        """
        from foldaway.effects.plot import forest

        return forest(self, axes, estimators=estimators)

    def outlook(
        self,
        *,
        records: float | None = None,
        days: float | None = None,
        records_per_day: float | None = None,
        width: float | None = None,
        power: float = 0.8,
        sequential: bool = False,
    ) -> Outlook:
        """What the trial can still find, and when its intervals will be narrow enough.

        Args:
            records: By how many records in all; twice as many as now if left out.
            days: The same in days from now.
            records_per_day: How many records come in a day.
            width: How wide an interval may be, from end to end.
            power: The chance to find the smallest effect.
            sequential: Whether by the any-time interval, in place of a single look at the end.

        Raises:
            EstimateError: The question is not complete, or contradicts itself.
        """
        from foldaway.effects.outlook import outlook_of

        return outlook_of(
            self,
            records=records,
            days=days,
            records_per_day=records_per_day,
            width=width,
            power=power,
            sequential=sequential,
        )

    def __str__(self) -> str:
        return self.to_string()

    def _repr_html_(self) -> str:
        return self.to_html()


def _paragraphs(texts: Sequence[str]) -> str:
    return "".join(f"<p>{escape(text)}</p>" for text in texts)


class Table(NamedTuple):
    """One arm against the control, for one outcome; and why some of its numbers are not there."""

    title: str
    header: list[str]
    rows: list[tuple[str, ...]]
    reasons: list[str]


def _headline(effects: Findings) -> str:
    counts = ", ".join(f"{arm} {n:,}" for arm, n in effects.counts.items())
    n = sum(effects.counts.values())
    return f"{effects.trial}: {n:,} record{'' if n == 1 else 's'} ({counts})"


def _legend(effects: Findings) -> str:
    names = dict.fromkeys(row.estimator for row in effects if row.estimator in ESTIMATORS and row.reliable)
    adjusting = [name for name in names if ESTIMATORS[name].adjusts]
    if not adjusting:
        return _LOOKS
    verbs = "makes use of the covariates and is" if len(adjusting) == 1 else "make use of the covariates and are"
    return f"{_LOOKS} {' and '.join(adjusting).capitalize()} {verbs} mostly the more precise."


def _joint_sentences(effects: Findings) -> list[str]:
    """For each outcome whether any arm differs from the control, where there are several."""
    return [
        f"{outcome}: a joint test of all {test.df} arms against the control gives p {p_relation(test.p_value)}."
        for outcome, test in effects.joint.items()
    ]


def _tables(effects: Findings, all_kinds: bool) -> Iterator[Table]:
    for each in comparisons(effects):
        rows = each.rows if all_kinds else each.best
        columns = _columns(rows, effects.confidence, all_kinds)
        yield Table(
            f"{each.outcome}: {each.arm} against {each.control}",
            list(columns),
            list(zip(*columns.values(), strict=True)),
            reasons(each.rows, rows, relative=not all_kinds),
        )


def reasons(rows: Sequence[Effect], shown: Sequence[Effect], *, relative: bool = True) -> list[str]:
    """Why some of the rows that a plan asks for are withheld, and numbers of those that are shown; each reason once.

    Notes on rows are among them.
    """
    withheld = [why for row in rows for why in (row.why, row.note)]
    absent = [why for row in shown for why in (row.anytime_why, relative_reason(row) if relative else None)]
    return list(dict.fromkeys(why for why in withheld + absent if why))


def _columns(rows: Sequence[Effect], confidence: float, all_kinds: bool) -> dict[str, list[str]]:
    """The cells by column; all numbers of a comparison have as many decimal places as its smallest error deserves."""
    places = places_for(row.std_error for row in rows)
    columns = {
        "estimator": [row.estimator for row in rows],
        "error": [row.se_kind for row in rows],
        "effect": [number(row.estimate, places=places) for row in rows],
    }
    if all_kinds:
        columns["std.err."] = [number(row.std_error, places=None if places is None else places + 1) for row in rows]
    interval = f"{100 * confidence:g} % interval"
    columns[interval] = [interval_text(row.ci_lower, row.ci_upper, places) for row in rows]
    if any(row.p_adjusted is not None for row in rows):
        columns["adj. p"] = [p_text(row.p_adjusted) for row in rows]
    else:
        columns["p"] = [p_text(row.p_value) for row in rows]
    if not all_kinds:  # it would only repeat itself, kind after kind
        columns["relative"] = [relative_text(row) for row in rows]
    columns["any time"] = [reach_text(row.anytime_ci_lower, row.anytime_ci_upper, places) for row in rows]
    return columns
