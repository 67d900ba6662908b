"""What is wrong with records: counts by arm, column and rule, never a value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import msgspec

from foldaway.errors import RecordError, many
from foldaway.plan.analysis import SLIPS
from foldaway.records.columns import REFUSED
from foldaway.records.values import NULL, WRONG_TYPE

# The name of an arm that is not known; the plan allows no arm with an empty name.
NO_ARM = ""

# The rule of values that were brought within their bounds: their records were not left out.
CLIPPED = "clipped to its bounds"

# The rule of lines that cannot be taken apart into columns.
RAGGED = "not a record"

# The rule of units whose records are of more than one arm.
SEVERAL_ARMS = "unit in several arms"


class Fault(msgspec.Struct, frozen=True, array_like=True, order=True):
    """So many records of an arm break this rule in this column."""

    arm: str
    column: str
    rule: str
    records: int


class Faults:
    """Records left out, by arm, and the reasons, by arm, column and rule; clipped values too. Adds up like a tally."""

    def __init__(self, records: Iterable[tuple[str, int]] = (), reasons: Iterable[Fault] = ()) -> None:
        self.records: Counter[str] = Counter(dict(records))
        self.reasons: Counter[tuple[str, str, str]] = Counter()
        for fault in reasons:
            self.reasons[fault.arm, fault.column, fault.rule] += fault.records

    def __bool__(self) -> bool:
        return bool(self.records)

    def __iter__(self) -> Iterator[Fault]:
        return (Fault(*key, count) for key, count in sorted(self.reasons.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Faults) and (self.records, self.reasons) == (other.records, other.reasons)

    def __add__(self, other: Faults) -> Faults:
        return Faults((self.records + other.records).items(), [*self, *other])

    def __repr__(self) -> str:
        return " | ".join([f"Faults: n={self.total:_}", *self.lines()])

    def at_least(self, fewest: int, rounded: Callable[[float], int]) -> Faults:
        """Those counts that are no smaller than this, rounded."""
        return Faults(
            [(arm, rounded(count)) for arm, count in self.records.items() if count >= fewest],
            [Fault(*key, rounded(count)) for key, count in self.reasons.items() if count >= fewest],
        )

    @property
    def total(self) -> int:
        """How many records are faulty; each counts once however many rules it breaks."""
        return self.records.total()

    @property
    def clipped(self) -> list[Fault]:
        """Values that were brought within their bounds."""
        return [fault for fault in self if fault.rule == CLIPPED]

    def by_column(self) -> dict[str, dict[str, int]]:
        """Counts of records left out by column, then rule, over all arms."""
        table: dict[str, dict[str, int]] = {}
        for fault in (each for each in self if each.rule != CLIPPED):
            rules = table.setdefault(fault.column, {})
            rules[fault.rule] = rules.get(fault.rule, 0) + fault.records
        return table

    def lines(self) -> list[str]:
        """The same for a person, a line for each column."""
        return [
            f"{column}: " + ", ".join(f"{count:,} {rule}" for rule, count in rules.items())
            for column, rules in self.by_column().items()
        ]


class FaultyBatch(RecordError):
    """A batch refused whole, with its faults and the position of the first faulty record, if one could be read.

    And whether its plan is fixed, as that of a site is, whose coordinator has it: then no other plan is advised.
    """

    def __init__(self, faults: Faults, n: int, first: int | None = None, *, fixed: bool = False) -> None:
        self.faults = faults
        self.n = n
        self.first = first
        self._fixed = fixed
        super().__init__(self._words(registered=fixed))

    def at_server(self) -> str:
        """The same for a sender: the plan of a registered trial is fixed."""
        return self._words(registered=True)

    def _words(self, *, registered: bool = False) -> str:
        n, bad = self.n, self.faults.total
        lines = [
            f"{REFUSED}: {bad:,} of {many(n, 'record')} {'is' if bad == 1 else 'are'} faulty.",
            *(f"  {line}" for line in self.faults.lines()),
            *_hints(self.faults, n, registered=registered),
        ]
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(FaultyBatch, fixed=self._fixed), (
            self.faults,
            self.n,
            self.first,
        )  # so that it can leave a worker process


def none_folded(dropped: Faults, what: str) -> str:
    """That there is nothing to save or to report, and which faults that comes from.

    Example:
        >>> print(none_folded(Faults([("a", 2)], [Fault("a", "y", "wrong type", 2)]), "report"))  # doctest: +ELLIPSIS
        no records were folded, so there is nothing to report: 2 were faulty and left out.
          y: 2 wrong type
        Write a column whose values have the wrong type as numbers: a date ...
    """
    said = f"no records were folded, so there is nothing to {what}"
    if not dropped:
        return f"{said}."
    lines = [f"  {line}" for line in dropped.lines()]
    return "\n".join([f"{said}: {dropped.total:,} were faulty and left out.", *lines, *_hints(dropped, dropped.total)])


WITHIN = (
    "If the arms were drawn within these units (people of both arms in a village), the records are right: name "
    "the column as the plan's `cluster`, and what was randomised, unless it was the record, as its `unit`."
)


_AS_NUMBERS = (
    "Write a column whose values have the wrong type as numbers: a date as days, a percentage as 0.17, a decimal comma "
    "as a point (1.5), yes and no as 1 and 0. Units, arms and levels are text or whole numbers."
)


def excess(dropped: Faults, folded: int, limit: float, told: Faults | None = None) -> str:
    """That more records were dropped than the plan allows, with the reasons by rule; empty if there were not.

    Args:
        dropped: Those that were.
        folded: How many were not.
        limit: The share of all that may be.
        told: The reasons as they may be told to others.

    Example:
        >>> print(excess(Faults([("a", 9)], [Fault("a", "y", "null", 9)]), 91, 0.05))
        more records were dropped as faulty than the 5 % that the plan allows (`drop_limit`): y: 9 null.
        >>> excess(Faults([("a", 9)]), 991, 0.05)
        ''
    """
    if dropped.total <= limit * (dropped.total + folded):
        return ""
    shown = dropped if told is None else told
    lines = shown.lines()
    reasons = f": {'; '.join(lines)}" if lines else ""
    allowed = f"the {100 * limit:g} % that the plan allows (`drop_limit`)"
    typed = f" {_AS_NUMBERS}" if any(WRONG_TYPE in counts for counts in shown.by_column().values()) else ""
    return f"more records were dropped as faulty than {allowed}{reasons}.{typed}"


def _hints(faults: Faults, n: int, *, registered: bool = False) -> list[str]:
    """What to do: write a column that is wrong throughout in another way, or mend single records."""
    rules = list(faults.by_column().values())
    if any(0 < counts.get(WRONG_TYPE, 0) >= n - counts.get(NULL, 0) for counts in rules):
        if registered:  # the sender may write in any language
            return [f'{_AS_NUMBERS} In JSON, "y": 1.5 is a number and "y": "1.5" is text.']
        return [
            f"{_AS_NUMBERS} For a categorical column, list its `levels` beside its name in `covariates` or `baseline`. "
            "One cell of text makes text of a column in pandas: convert it with pandas.to_numeric(column, "
            'errors="coerce").'
        ]
    if any(SEVERAL_ARMS in counts for counts in rules):
        return [WITHIN]
    several = faults.total > SLIPS * n
    setting = f"set drop_limit in the plan {'above their share of all records' if several else f'to {SLIPS:g}'}"
    unknown = [counts[rule] for counts in rules for rule in ("unknown arm", "unknown level") if rule in counts]
    if unknown:
        spelling = "Arms and levels must be spelled exactly as in the plan, including capitals and spaces."
        drop = f"To leave out and count records that do not belong to this trial, {setting}."
        return [spelling] if registered or max(unknown) >= n else [spelling, drop]
    absent = [
        f"No record has a value of {column}: is the name in the records spelled exactly as in the plan?"
        for column, counts in faults.by_column().items()
        if counts.get(NULL, 0) >= n
    ]
    if any(RAGGED in counts for counts in rules):
        absent += [
            "A line is not a record if it has more or fewer cells than the header. In JSON, a record is one object on "
            "one line, and its unit, arm and levels are text or numbers, never an object or a list."
        ]
    if registered:
        return [
            *absent,
            "Correct or remove these records. The plan of a registered trial is fixed: another needs a new trial.",
        ]
    advice = [*absent, f"Repair these records; or, to leave out and count such records, {setting}."]
    for column in [column for column, counts in faults.by_column().items() if NULL in counts][:1]:
        table = f'{{kind = "mean", column = "{column}", missing = "allowed"}}'
        advice.append(f"If {column} is an outcome that may be missing, write it in the plan's outcomes as {table}.")
    return advice
