"""What a running trial can still find, and when its intervals will be narrow enough.

It follows from effects alone, be they exact or told to others: the error of an effect shrinks with the root of the
number of records. So an outlook on told effects tells nothing that they have not told.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from foldaway.effects.effect import Effect
from foldaway.effects.findings import Findings
from foldaway.effects.headline import Comparison, comparisons, family
from foldaway.effects.numbers import in_lines, percent_text
from foldaway.errors import EstimateError, many
from foldaway.inference.anytime import anytime_reach
from foldaway.inference.claim import Alternative, Claim, claim_of
from foldaway.inference.intervals import critical
from foldaway.inference.power import Aim, single_look, smallest
from foldaway.plan.vocabulary import ERRORS
from foldaway.table import ABSENT, number, text_table

# Records beyond which nothing is promised.
_MOST = 1e13


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """One arm against the control on one outcome. A number that cannot be told is None; ``why`` may say why.

    ``width`` is how wide the interval is now, ``smallest`` the effect that is found by then with the chance that was
    asked for, ``relative`` the same as a share of the control's level. ``records_for_width`` is how many records it
    takes in all until the interval is as narrow as was asked, ``days_for_width`` how many days from now.
    """

    outcome: str
    arm: str
    control: str
    width: float | None = None
    smallest: float | None = None
    relative: float | None = None
    records_for_width: int | None = None
    days_for_width: float | None = None
    why: str | None = None


@dataclass(frozen=True, repr=False)
class Outlook(Sequence[Forecast]):
    """What a trial can still find.

    Attributes:
        rows: One for each outcome and arm.
        trial: The trial's name.
        records: Records that it has.
        by: Records that it will have, at which effects are to be found.
        days: How many days from now that is; None if it is not known how many come in a day.
        power: The chance to find them.
        confidence: Of the intervals.
        sequential: Whether that is by the any-time interval, at that look.
        wanted_width: How wide intervals may be.
    """

    rows: tuple[Forecast, ...]
    trial: str
    records: int
    by: int
    days: float | None
    power: float
    confidence: float
    sequential: bool
    wanted_width: float | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def to_dict(self) -> dict[str, Any]:
        """Everything, for machines."""
        about = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "rows"}
        return {**about, "rows": [msgspec.structs.asdict(row) for row in self.rows]}

    def to_json(self) -> str:
        """The same as JSON."""
        return msgspec.json.encode(self.to_dict()).decode()

    def to_string(self) -> str:
        """For a person, in 80 columns."""
        when = "" if self.days is None else f", in about {many(math.ceil(self.days), 'day')}"
        looks = "however often you look" if self.sequential else "in a single look at the end"
        first = (
            f"{self.trial} has {many(self.records, 'record')}. With {many(self.by, 'record')}{when}, it finds the "
            f"effects below with a chance of {100 * self.power:g} % at {100 * self.confidence:g} % confidence, {looks}."
        )
        columns: dict[str, list[str]] = {
            "outcome": [row.outcome for row in self.rows],
            "arm": [row.arm for row in self.rows],
            "width now": [number(row.width, 3) for row in self.rows],
            "smallest": [ABSENT if row.smallest is None else f"±{number(row.smallest, 3)}" for row in self.rows],
            "relative": [percent_text(row.relative).replace("+", "±") for row in self.rows],
        }
        if self.wanted_width is not None:
            columns[f"records for {self.wanted_width:g}"] = [number(row.records_for_width) for row in self.rows]
            if any(row.days_for_width is not None for row in self.rows):
                columns["days"] = [
                    ABSENT if row.days_for_width is None else f"{math.ceil(row.days_for_width):,}" for row in self.rows
                ]
        table = text_table(list(columns), [list(cells) for cells in zip(*columns.values(), strict=True)], left=2)
        reasons = dict.fromkeys(row.why for row in self.rows if row.why)
        note = "This holds as long as new units arrive; more records of the same units add less information."
        return "\n\n".join([in_lines(first), table, *(in_lines(f"· {each}", "  ") for each in (*reasons, note))])

    def __str__(self) -> str:
        return self.to_string()

    def __repr__(self) -> str:
        return f"Outlook: {self.trial} | n={self.records:_} | by={self.by:_}"


def outlook_of(
    effects: Findings,
    records: float | None,
    days: float | None,
    records_per_day: float | None,
    width: float | None,
    power: float,
    sequential: bool,
) -> Outlook:
    """What the trial can still find; `Effects.outlook` says how to ask."""
    now = sum(effects.counts.values())
    if effects.final:
        raise EstimateError("the trial has ended: its effects are final, and no more records come.")
    if sequential and effects.plan.looks is not None:
        raise EstimateError("a plan with `looks` has no intervals for any number of looks: leave out `sequential`.")
    if records is not None and days is not None:
        raise EstimateError("give `records` or `days`, not both.")
    if days is not None and records_per_day is None:
        raise EstimateError("`days` needs `records_per_day`.")
    if min((each for each in (days, records_per_day, width) if each is not None), default=1.0) <= 0:
        raise EstimateError("`days`, `records_per_day` and `width` must be above 0.")
    if not 0.5 <= power < 1:
        raise EstimateError("`power` must be at least 0.5 and below 1.")
    by = records if records is not None else 2 * now if days is None else now + days * (records_per_day or 0)
    if not now <= by < math.inf:
        raise EstimateError(f"the trial already has {many(now, 'record')}: ask for more.")
    rows = [_ahead(effects, each, by, power, width, records_per_day, sequential) for each in comparisons(effects)]
    ahead = None if records_per_day is None else (by - now) / records_per_day
    return Outlook(tuple(rows), effects.trial, now, math.ceil(by), ahead, power, effects.confidence, sequential, width)


def _ahead(
    effects: Findings,
    comparison: Comparison,
    by: float,
    power: float,
    width: float | None,
    per_day: float | None,
    sequential: bool,
) -> Forecast:
    """One row."""
    lead, now = comparison.lead, sum(effects.counts.values())
    row = Forecast(outcome=lead.outcome, arm=lead.arm, control=lead.control)
    interval = _interval(effects, lead, now, sequential)
    if interval is None:
        return msgspec.structs.replace(row, why=lead.why or (lead.anytime_why if sequential else None))
    found = interval.smallest(by, power)
    enough = None if width is None else smallest(lambda n: 2 * interval.reach(n) <= width, now, _MOST, 1e-6)
    return msgspec.structs.replace(
        row,
        width=2 * interval.reach(now),
        smallest=found,
        relative=found / lead.control_level if lead.control_level is not None and lead.control_level > 0 else None,
        records_for_width=None if enough is None else math.ceil(enough),
        days_for_width=None if enough is None or per_day is None else (enough - now) / per_day,
    )


@dataclass(frozen=True)
class _Interval:
    """How an interval shrinks: by its error after the records of now, and the reach at each number of records.

    Attributes:
        alternative: Which sides of it are told, as `inference.claim` has it.
        family: How many comparisons the test allows for, by Bonferroni's bound on Holm's.
    """

    error: float
    now: float
    confidence: float
    df: float
    tightest_at: int | None
    alternative: Alternative = "two-sided"
    family: int = 1

    def error_at(self, n: float) -> float:
        return self.error * math.sqrt(self.now / n)

    def reach(self, n: float, family: int = 1) -> float:
        confidence, claim = 1 - (1 - self.confidence) / family, Claim(self.alternative)
        if self.tightest_at is None:
            return critical(claim.coverage(confidence), self.df) * self.error_at(n)
        one_sided = claim.sides == 1
        reach = anytime_reach(np.asarray(n), confidence, self.tightest_at, self.df, one_sided=one_sided)
        return float(reach) * self.error_at(n)

    def smallest(self, n: float, power: float) -> float:
        """The effect that the look at n finds with this chance, or the margin that it shows if there is no effect."""
        from scipy.special import ndtri

        if self.alternative == "within":  # both of its tests must succeed
            power = (1 + power) / 2
        error = self.error_at(n)
        if self.tightest_at is not None:
            return self.reach(n, self.family) + float(ndtri(power)) * error
        aim = Aim(0.0, 0.0, False, (1 - self.confidence) / Claim(self.alternative).sides / self.family)
        found = smallest(lambda size: single_look(aim, size, error, self.df) >= power, error, 1e6 * error, 1e-6)
        assert found is not None
        return found


def _interval(effects: Findings, lead: Effect, now: float, sequential: bool) -> _Interval | None:
    if not now or not lead.reliable or not lead.std_error or lead.df is None:
        return None
    plan = effects.plan
    asked = claim_of(plan, plan.outcome(lead.outcome)).alternative
    corrected = plan.correction != "none" and not plan.outcome(lead.outcome).guardrail
    together = len(family(effects)) if corrected else 1
    if not sequential:
        return _Interval(lead.std_error, now, effects.confidence, lead.df, None, asked, together)
    ends = (lead.anytime_ci_lower, lead.anytime_ci_upper)
    reaches = [abs(end - (lead.estimate or 0.0)) for end in ends if end is not None and math.isfinite(end)]
    if not reaches:
        return None
    df, tightest = lead.df if ERRORS[lead.se_kind].clusters else math.inf, plan.tightest_at
    told = _Interval(1.0, now, effects.confidence, df, tightest, asked, together)
    return replace(told, error=reaches[0] / told.reach(now))
