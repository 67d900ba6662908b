"""Findings for a person: text that fits 80 columns, and HTML for notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from textwrap import fill
from typing import NamedTuple

from foldaway.effects.effect import Effect
from foldaway.effects.findings import Findings
from foldaway.effects.headline import best_kind
from foldaway.effects.numbers import interval_text, p_text, reach_text
from foldaway.effects.relative import relative_text
from foldaway.table import html_table, number, places_for, text_table

WIDTH = 80

_LOOKS = (
    "The interval and p are for a single look at the data; “any time” is how far the interval must reach to each side "
    "of the effect if you look more than once."
)
_ADJUSTED = "Regression and interacted make use of the covariates and are mostly the more precise."


class Table(NamedTuple):
    """One arm against the control, for one outcome."""

    title: str
    header: list[str]
    rows: list[tuple[str, ...]]


def as_text(effects: Findings, all_kinds: bool) -> str:
    """A table for each comparison, and the notes."""
    tables = [f"{table.title}\n{text_table(table.header, table.rows, left=2)}" for table in _tables(effects, all_kinds)]
    legend = [fill(_legend(effects), WIDTH)] if tables else []
    alarms, notes = _alarms_and_notes(effects)
    first = [fill(f"! {alarm}", WIDTH, subsequent_indent="  ") for alarm in alarms]
    last = [fill(f"· {note}", WIDTH, subsequent_indent="  ") for note in notes]
    return "\n\n".join([fill(_headline(effects), WIDTH), *first, *tables, *legend, *last])


def as_html(effects: Findings, all_kinds: bool) -> str:
    """The same as HTML."""
    tables = [html_table(table.header, table.rows, table.title) for table in _tables(effects, all_kinds)]
    legend = [_legend(effects)] if tables else []
    alarms, notes = _alarms_and_notes(effects)
    before = [f"<p>{escape(text)}</p>" for text in (_headline(effects), *(f"! {alarm}" for alarm in alarms))]
    after = [f"<p>{escape(text)}</p>" for text in (*legend, *notes)]
    return "".join(["<div>", *before, *tables, *after, "</div>"])


def _headline(effects: Findings) -> str:
    counts = ", ".join(f"{arm} {n:,}" for arm, n in effects.counts.items())
    n = sum(effects.counts.values())
    return f"{effects.trial}: {n:,} record{'' if n == 1 else 's'} ({counts})"


def _alarms_and_notes(effects: Findings) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """A sample ratio that does not fit comes first of the notes, and is to be read before any effect."""
    alarms = 0 if effects.sample_ratio.ok else 1
    return effects.notes[:alarms], effects.notes[alarms:]


def _legend(effects: Findings) -> str:
    adjusted = any(row.estimator in ("regression", "interacted") for row in effects)
    return f"{_LOOKS} {_ADJUSTED}" if adjusted else _LOOKS


def headline(effects: Findings) -> list[Effect]:
    """One row for each outcome, arm and estimator: the one with the kind of error that is shown first."""
    kinds: dict[tuple[str, str, str], list[str]] = {}
    for row in effects:
        kinds.setdefault((row.outcome, row.arm, row.estimator), []).append(row.se_kind)
    return [row for row in effects if row.se_kind == best_kind(kinds[row.outcome, row.arm, row.estimator])]


def _tables(effects: Findings, all_kinds: bool) -> Iterator[Table]:
    comparisons: dict[str, list[Effect]] = {}
    for row in effects if all_kinds else headline(effects):
        comparisons.setdefault(f"{row.outcome}: {row.arm} against {row.control}", []).append(row)
    for title, rows in comparisons.items():
        columns = _columns(rows, effects.confidence, all_kinds)
        yield Table(title, list(columns), list(zip(*columns.values(), strict=True)))


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
