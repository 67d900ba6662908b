"""The table of baseline characteristics, as data: by arm a mean and a standard deviation, or a count and a share.

There are no p-values: arms were randomised, so that whatever differs between them does so by chance (CONSORT 2025).
"""

from __future__ import annotations

from typing import Any

import msgspec

from foldaway.effects.tabular import Tabular
from foldaway.table import ABSENT, number

BASELINE_LEGEND = (
    "Mean (standard deviation) or count (share) of the records that have a value; SMD: the standardised difference "
    "from the control."
)


class BaselineRow(msgspec.Struct, frozen=True, kw_only=True):
    """A characteristic of an arm.

    Attributes:
        column: The column.
        level: The level whose share it is; empty for a numeric column.
        arm: The arm.
        n: How many records have a value.
        missing: How many have none.
        mean: The mean of a numeric column.
        std_dev: Its standard deviation.
        count: How many have the level; of a numeric column of zeros and ones, how many have 1.
        share: As a share of those that have a value.
        std_difference: The standardised difference from the control.
        why: Why others are not told; None if they are.
    """

    column: str
    level: str = ""
    arm: str
    n: int | None = None
    missing: int | None = None
    mean: float | None = None
    std_dev: float | None = None
    count: int | None = None
    share: float | None = None
    std_difference: float | None = None
    why: str | None = None

    @property
    def text(self) -> str:
        """What a cell of the printed table says: ``54 (48 %)`` or ``61.2 (9.4)``."""
        if self.count is not None and self.share is not None:
            return f"{self.count:,} ({100 * self.share:.3g} %)"
        if self.mean is None:
            return ABSENT
        return f"{number(self.mean)} ({number(self.std_dev, 3)})"


class BaselineTable(tuple[BaselineRow, ...], Tabular):
    """All rows: by column, level and arm.

    Example:
        >>> import foldaway as fa
        >>> baseline = ["age", {"column": "sex", "levels": ["f", "m"]}]
        >>> plan = fa.Plan(name="demo", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], baseline=baseline)
        >>> trial = fa.Trial(plan)
        >>> ages = [40.0, 44.0, 50.0, 52.0]
        >>> trial.fold({"g": ["a", "b", "a", "b"], "y": [1.0, 2, 3, 5], "age": ages, "sex": ["f", "m", "m", "f"]})
        >>> table = trial.effects().baseline
        >>> [(row.arm, row.mean, row.text) for row in table if row.column == "age"]
        [('a', 45.0, '45.00 (7.07)'), ('b', 48.0, '48.00 (5.66)')]
        >>> table.to_pandas()[["level", "count"]].values.tolist()[2:]
        [['f', 1.0], ['f', 1.0], ['m', 1.0], ['m', 1.0]]
    """

    def to_dicts(self) -> list[dict[str, Any]]:
        """One flat dict per row."""
        return [msgspec.structs.asdict(row) for row in self]

    def _fields(self) -> dict[str, str]:
        return BaselineRow.__annotations__

    @property
    def reasons(self) -> list[str]:
        """Why some of it is withheld, each reason once."""
        return [f"{ABSENT}: {why}" for why in dict.fromkeys(row.why for row in self if row.why)]

    def printed(self) -> tuple[list[str], list[list[str]]]:
        """The header and the rows as papers print them: an arm in each column, and how many lack a value."""
        arms = list(dict.fromkeys(row.arm for row in self))
        several = len(arms) > 2
        header = ["characteristic", *arms, *(f"SMD {arm}" if several else "SMD" for arm in arms[1:])]
        rows: list[list[str]] = []
        for (column, level), those in self.by_trait().items():
            name = f"{column}: {level}" if level else column
            apart = [ABSENT if row.std_difference is None else f"{row.std_difference:.2f}" for row in those[1:]]
            rows.append([name, *(row.text for row in those), *apart])
            last = (column, level) == [trait for trait in self.by_trait() if trait[0] == column][-1]
            if last and any(row.missing != 0 for row in those):
                missing = ["few" if row.missing is None else f"{row.missing:,}" for row in those]
                rows.append([f"{column}: missing", *missing, *[""] * (len(arms) - 1)])
        return header, rows

    def by_trait(self) -> dict[tuple[str, str], list[BaselineRow]]:
        """The rows of all arms, by column and level."""
        found: dict[tuple[str, str], list[BaselineRow]] = {}
        for row in self:
            found.setdefault((row.column, row.level), []).append(row)
        return found
