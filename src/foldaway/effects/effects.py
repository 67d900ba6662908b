"""Effects: what a trial found, for people and machines: text that fits 80 columns, HTML for notebooks, JSON, plots."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from html import escape
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec

from foldaway.effects.baseline import BASELINE_LEGEND, BaselineRow
from foldaway.effects.curves import Curves, sentences
from foldaway.effects.decision import Decision, decisions_of
from foldaway.effects.effect import Effect
from foldaway.effects.findings import Findings
from foldaway.effects.flow import FlowDiagram
from foldaway.effects.headline import Comparison, comparisons, tested
from foldaway.effects.looks_taken import Look
from foldaway.effects.numbers import (
    interval_text,
    p_relation,
    p_text,
    reach_text,
    relative_interval_text,
    relative_reason,
    relative_text,
)
from foldaway.effects.percent import in_percent
from foldaway.effects.scorecard import as_text, explanations, scorecard
from foldaway.effects.segment import BySegment, in_short
from foldaway.effects.tipping import Tipping, tipping_of
from foldaway.effects.verdict import Verdict, verdicts_of
from foldaway.errors import UNREADABLE, StateError, TooEarly, instead_of, joined, many
from foldaway.inference.differing import JointTest
from foldaway.inference.loss import Loss
from foldaway.inference.sample_ratio import SampleRatio
from foldaway.keeping.disk import read_file
from foldaway.keeping.saved import is_encrypted, is_saved, load
from foldaway.plan import Plan
from foldaway.plan.vocabulary import COMPLIERS, ESTIMATORS
from foldaway.records.faults import Fault
from foldaway.table import ABSENT, html_table, number, places_for, text_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from foldaway.effects.outlook import Outlook

WIDTH = 80

_LOOKS = (
    "The interval and p are for a single look at the data; “any time” is how far the interval must reach to each side "
    "of the effect if you look more than once."
)

# What is of a kind of its own in JSON.
_KINDS = {
    "sample_ratio": SampleRatio,
    "losses": list[Loss],
    "segments": list[BySegment],
    "joint": dict[str, JointTest],
    "looks": list[Look],
    "curves": list[Curves],
    "baseline": list[BaselineRow],
    "flow": FlowDiagram | None,
}


class Effects(Findings):
    """The effects of a trial, with the checks that say whether to trust them."""

    def verdicts(self) -> list[Verdict]:
        """What every outcome and arm comes to: better, worse, not worse, alike, or not decided yet.

        Example:
            >>> import foldaway as fa
            >>> outcomes = [fa.Mean("y", better="higher")]
            >>> plan = fa.Plan(name="demo", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=outcomes)
            >>> trial = fa.Trial(plan)
            >>> trial.fold({"g": ["a", "b"] * 300, "y": [i % 7 + 3 * (i % 2) for i in range(600)]})
            >>> [(said.arm, said.verdict, said.holds) for said in trial.effects().verdicts()]
            [('b', 'better', True)]
        """
        return verdicts_of(self)

    def decisions(self, records_per_day: float | None = None) -> list[Decision]:
        """What to do with each arm, in one sentence, and the rule that decided: from the plan's outcomes and roles.

        Args:
            records_per_day: How many records come in a day, if that is known: what is missing is then told in days.

        Example:
            >>> import foldaway as fa
            >>> outcomes = [fa.Mean("y", better="higher")]
            >>> plan = fa.Plan(name="demo", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=outcomes)
            >>> trial = fa.Trial(plan)
            >>> trial.fold({"g": ["a", "b"] * 300, "y": [i % 7 + 3 * (i % 2) for i in range(600)]})
            >>> [decided.sentence for decided in trial.effects().decisions()]
            ['Ship it: y is higher.']
        """
        return decisions_of(self, records_per_day)

    def tipping(self) -> list[Tipping]:
        """What missing outcomes could change: how far they would have to lie from those that were observed.

        Example:
            >>> import foldaway as fa
            >>> outcomes = [{"column": "y", "missing": "allowed"}]
            >>> trial = fa.Trial(fa.Plan(name="demo", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=outcomes))
            >>> y = [None if i % 10 == 9 else i % 7 + 2.0 * (i % 2) for i in range(600)]
            >>> trial.fold({"g": ["a", "b"] * 300, "y": y})
            >>> (found,) = trial.effects().tipping()
            >>> found.shown, round(found.missing["b"], 2), round(found.apart["b"], 1)
            (True, 0.2, -8.4)
        """
        return tipping_of(self)

    def to_string(self, *, all: bool = False) -> str:
        """A line for each outcome and arm; with ``all`` also every estimator, kind of error and segment.

        Outcomes that are shares are in per cent.
        """
        return in_percent(self)._as_text(all)

    def to_html(self, *, all: bool = False) -> str:
        """The same as HTML."""
        return in_percent(self)._as_html(all)

    def _as_text(self, all: bool) -> str:
        alarm = [fill(f"! {self.alarm}", WIDTH, subsequent_indent="  ")] if self.alarm else []
        card = [as_text(self, WIDTH)] if self.rows else []
        notes = [fill(f"· {note}", WIDTH, subsequent_indent="  ") for note in self._remarks(all)]
        tables = []
        if all:
            tables = [_as_text(table) for table in _tables(self)]
            tables += [fill(_legend(self), WIDTH)] if tables else []
            tables += [fill(sentence, WIDTH) for sentence in _joint_sentences(self)]
            tables += [_as_text(table) for table in (*_by_segment(self), *_baseline(self))]
        head = fill(_headline(self), WIDTH)
        decided = ["\n".join(fill(each.sentence, WIDTH) for each in self.decisions())] if self.rows else []
        return "\n\n".join([*decided, head, *alarm, *card, *(["\n".join(notes)] if notes else []), *tables])

    def _as_html(self, all: bool) -> str:
        alarm = [f"! {self.alarm}"] if self.alarm else []
        decided = [each.sentence for each in self.decisions()]
        parts = [_paragraphs([*decided, _headline(self), *alarm])]
        if self.rows:
            parts.append(html_table(*scorecard(self)))
        parts.append(_paragraphs(self._remarks(all)))
        if all:
            tables = list(_tables(self))
            parts += [_as_html(table) for table in tables]
            parts.append(_paragraphs([*([_legend(self)] if tables else []), *_joint_sentences(self)]))
            parts += [_as_html(table) for table in (*_by_segment(self), *_baseline(self))]
        return "".join(["<div>", *parts, "</div>"])

    def _remarks(self, all: bool) -> list[str]:
        """What the scorecard rests on and leaves out; segments in a sentence each where their tables are not shown.

        And where the compliers' effects are, which are in tables alone.
        """
        headings = [self.heading(each.outcome) for each in self.segments]
        more = [] if all else in_short(self.segments, headings)
        leads = [each.lead.estimator for each in comparisons(self)]
        if not all and COMPLIERS not in leads and any(row.estimator == COMPLIERS for row in self.rows):
            more.append(
                "These effects are of the assignment. Those on compliers, who take the treatment up because it was "
                "offered to them, are in the tables of every estimator: --all, or in Python to_string(all=True)."
            )
        rules = [each.rule for each in self.decisions()[:1] if each.rule]
        hazards = sentences(self.curves, [self.heading(each.outcome) for each in self.curves])
        tips = tipping_of(self, percent=True) if all else []
        more += [each.sentence(self.heading(each.outcome)) for each in tips]
        return [*rules, *explanations(self), *hazards, *more, *self.notes]

    def plot(self, axes: Axes | None = None, *, estimators: bool = False) -> Figure:
        """A forest plot of the effects and their intervals, by matplotlib (``pip install foldaway[plot]``).

        Args:
            axes: Where to draw one outcome; a new figure with a panel for each outcome if left out.
            estimators: Show every estimator, in place of the one that the report leads with.
        """
        from foldaway.effects.plot import forest

        return forest(in_percent(self), axes, estimators=estimators)

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

        return outlook_of(self, records, days, records_per_day, width, power, sequential)

    def to_json(self) -> str:
        """Everything, for machines; numbers that cannot be told are null, and so are infinite degrees of freedom."""
        about = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "rows"}
        faults = [msgspec.structs.asdict(fault) for fault in self.faults]
        about["segments"] = [{**msgspec.structs.asdict(each), "summary": each.summary} for each in self.segments]
        about["plan"] = self.plan.settings()
        if self.plan.looks is None:
            del about["looks"]
        for rare in ("curves", "baseline", "flow"):
            if not about[rare]:
                del about[rare]
        said = {
            "decisions": self.decisions(),
            "verdicts": self.verdicts(),
            "explained": explanations(self),
            "faults": faults,
            "effects": self.rows,
        }
        return msgspec.json.encode({**about, **said}).decode()

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The effects in a file: what is left of a trial that has ended, or effects as JSON.

        JSON is what `to_json` wrote, what a server answered (``foldaway effects NAME --json``), or the
        ``effects.json`` of an archive.

        Args:
            path: The file.

        Raises:
            StateError: It holds no effects, such as the state of a trial that goes on.
            TooEarly: The trial ended without effects.

        Example:
            >>> import tempfile
            >>> import foldaway as fa
            >>> trial = fa.Trial(fa.Plan(name="demo", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"]))
            >>> trial.fold({"g": ["a", "b"] * 60, "y": [float(i % 7) for i in range(120)]})
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     written = Path(folder, "effects.json").write_text(trial.told().to_json())
            ...     Effects.load(Path(folder, "effects.json")).rounded
            True
        """
        with instead_of(OSError, lambda error: StateError(f"cannot read {path}: {error.strerror}.")):
            data = read_file(Path(path))
        if not is_saved(data):
            with instead_of(UNREADABLE, StateError(f"{path} is not a foldaway state, and holds no effects as JSON.")):
                return cls.answered(data)
        if is_encrypted(Path(path)) or (final := load(path).final) is None:
            raise StateError(f"{path} is the state of a trial that goes on: fa.Trial.load(path).effects() reads it.")
        if final.effects is None:
            raise TooEarly(f"{path}: the trial ended without effects, since too few units had come.")
        return replace(cls.from_json(final.effects), final=True)

    @classmethod
    def answered(cls, data: bytes) -> Self:
        """The effects in JSON: by themselves, or in a server's answer, which says whether they are final."""
        about = msgspec.json.decode(data)
        if not isinstance(about["effects"], dict):
            return cls.from_json(data)
        return replace(cls.from_json(msgspec.json.encode(about["effects"])), final=about["final"])

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """The effects that `to_json` wrote."""
        about = msgspec.json.decode(text)
        for follows in ("decisions", "verdicts", "explained"):  # from the rows
            del about[follows]
        rows = [Effect(**_infinite(row)) for row in about.pop("effects")]
        faults = [Fault(**fault) for fault in about.pop("faults")]
        for each in about["segments"]:
            each["effects"] = list(map(_infinite, each["effects"]))
        for test in about["joint"].values():
            test["df_error"] = test["df_error"] or math.inf
        for rare in ("looks", "curves", "baseline"):  # left out where the plan has none
            about.setdefault(rare, [])
        about.setdefault("flow", None)
        about |= {name: msgspec.convert(about[name], kind) for name, kind in _KINDS.items()}
        return cls(rows, faults=faults, plan=Plan(**about.pop("plan")), **about)

    def __str__(self) -> str:
        return self.to_string()

    def _repr_html_(self) -> str:
        return self.to_html()


def _paragraphs(texts: Sequence[str]) -> str:
    return "".join(f"<p>{escape(text)}</p>" for text in texts)


class EffectTable(NamedTuple):
    """One arm against the control, for one outcome; why some of its numbers are not there, and what it comes to."""

    title: str
    header: list[str]
    rows: Sequence[Sequence[str]]
    reasons: list[str]
    names: int = 2
    summary: str = ""


def _headline(effects: Findings) -> str:
    counts = ", ".join(f"{arm}: {n:,}" for arm, n in effects.counts.items())
    n = sum(effects.counts.values())
    return f"{effects.trial}: {many(n, 'record')} ({counts})"


def _legend(effects: Findings) -> str:
    names = dict.fromkeys(row.estimator for row in effects if row.reliable)
    adjusting = [name for name in names if ESTIMATORS[name].adjusts]
    said = [_LOOKS, *tested(effects, dict.fromkeys(row.outcome for row in effects))]
    if adjusting:
        verbs = "uses the covariates and is" if len(adjusting) == 1 else "use the covariates and are"
        said.append(f"{joined(adjusting).capitalize()} {verbs} usually more precise.")
    return " ".join(said)


def _joint_sentences(effects: Findings) -> list[str]:
    """For each outcome whether any arm differs from the control, where there are several."""
    return [
        f"{effects.heading(outcome)}: a joint test of all {test.df} arms against the control gives p "
        f"{p_relation(test.p_value)}."
        for outcome, test in effects.joint.items()
    ]


def _as_text(table: EffectTable) -> str:
    reasons = (fill(f"– {reason}", WIDTH, subsequent_indent="  ") for reason in table.reasons)
    summary = [fill(table.summary, WIDTH)] if table.summary else []
    return "\n".join([table.title, text_table(table.header, table.rows, left=table.names), *reasons, *summary])


def _as_html(table: EffectTable) -> str:
    after = [*table.reasons, *([table.summary] if table.summary else [])]
    return html_table(table.header, table.rows, table.title) + _paragraphs(after)


def _by_segment(effects: Findings) -> Iterator[EffectTable]:
    for each in effects.segments:
        title = f"{effects.heading(each.outcome)}: {each.arm} against {each.control}, by {each.column}"
        yield EffectTable(
            title, *each.table(effects.confidence), each.reasons, 1, " ".join([each.summary, *each.across])
        )


def _baseline(effects: Findings) -> Iterator[EffectTable]:
    if effects.baseline:
        header, rows = effects.baseline.printed()
        yield EffectTable("Baseline characteristics", header, rows, effects.baseline.reasons, 1, BASELINE_LEGEND)


def _tables(effects: Findings) -> Iterator[EffectTable]:
    for each in comparisons(effects):
        columns = _columns(each.rows, effects.confidence)
        yield EffectTable(
            f"{effects.heading(each.outcome)}: {each.arm} against {each.control}",
            list(columns),
            list(zip(*columns.values(), strict=True)),
            [*_relative(each), *reasons(each.rows, [each.lead])],
        )


def _relative(comparison: Comparison) -> list[str]:
    """The effect as a share of the control's level, of the row that leads."""
    row = comparison.lead
    text = relative_text(row)
    if row.relative is None or text == ABSENT:
        return []
    return [
        f"Relative to {comparison.control}: {text} ({relative_interval_text(row)}; {row.estimator}, {row.se_kind})."
    ]


def reasons(rows: Sequence[Effect], shown: Sequence[Effect]) -> list[str]:
    """Why some of the rows that a plan asks for are withheld, and numbers of those that are shown; each reason once.

    Notes on rows are among them.
    """
    withheld = [why for row in rows for why in (row.why, row.note)]
    absent = [why for row in shown for why in (row.anytime_why, relative_reason(row))]
    return list(dict.fromkeys(why for why in withheld + absent if why))


def _columns(rows: Sequence[Effect], confidence: float) -> dict[str, list[str]]:
    """The cells by column; all numbers of a comparison have as many decimal places as its smallest error deserves."""
    places = places_for(row.std_error for row in rows)
    adjusted = any(row.p_adjusted is not None for row in rows)
    return {
        "estimator": [row.estimator for row in rows],
        "error": [row.se_kind for row in rows],
        "effect": [number(row.estimate, places=places) for row in rows],
        "std.err.": [number(row.std_error, places=None if places is None else places + 1) for row in rows],
        f"{100 * confidence:g} % interval": [interval_text(row.ci_lower, row.ci_upper, places) for row in rows],
        "adj. p" if adjusted else "p": [p_text(row.p_adjusted if adjusted else row.p_value) for row in rows],
        "any time": [reach_text(row.anytime_ci_lower, row.anytime_ci_upper, places) for row in rows],
    }


def _infinite(row: dict[str, Any]) -> dict[str, Any]:
    """JSON has no number for infinity: where there is an error, or the other end of an interval, null stands for it."""
    found = dict(row)
    if row["df"] is None and row["std_error"] is not None:
        found["df"] = math.inf
    for lower in (name for name in row if name.endswith("ci_lower")):
        upper = lower.replace("lower", "upper")
        if (row[lower] is None) != (row[upper] is None):
            found |= {lower: -math.inf} if row[lower] is None else {upper: math.inf}
    return found
