"""The arms with their probabilities, and what the arm's column says for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from foldaway.plan.part import Fixed


class WrittenArm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An arm that the column does not call by its name, or by several: its probability and these values."""

    share: float
    values: str | list[str]


if TYPE_CHECKING:
    WrittenArms = Mapping[str, float | Mapping[str, Any]]
else:
    WrittenArms = Annotated[
        Mapping[str, float | WrittenArm],
        Meta(description="a table of arms with their probabilities, or with `share` and `values`"),
    ]


class Allocation(Fixed):
    """The arms' probabilities by name; and, in `said`, the values of the arm's column that stand for each.

    Example:
        >>> arms = Allocation({"control": 0.5, "new": WrittenArm(0.5, ["new", "New"])})
        >>> dict(arms), arms.said["control"], arms.said["new"]
        ({'control': 0.5, 'new': 0.5}, ('control',), ('new', 'New'))
        >>> arms.written()["new"]
        {'share': 0.5, 'values': ['new', 'New']}
    """

    __slots__ = ("said",)

    said: Mapping[str, tuple[str, ...]]

    def __init__(self, arms: Mapping[str, float | WrittenArm]) -> None:
        super().__init__({arm: each.share if isinstance(each, WrittenArm) else each for arm, each in arms.items()})
        self.said = Fixed({arm: _values(arm, each) for arm, each in arms.items()})

    def written(self) -> dict[str, Any]:
        """As a plan has it: a probability alone where the column calls the arm by its name and by no other."""
        return {arm: share if self.said[arm] == (arm,) else self._table(arm) for arm, share in self.items()}

    def _table(self, arm: str) -> dict[str, Any]:
        values = self.said[arm]
        return {"share": self[arm], "values": values[0] if len(values) == 1 else list(values)}

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.written(),)


def _values(arm: str, written: float | WrittenArm) -> tuple[str, ...]:
    if not isinstance(written, WrittenArm):
        return (arm,)
    return (written.values,) if isinstance(written.values, str) else tuple(written.values)


def _restored(written: dict[str, Any]) -> Allocation:
    return Allocation(msgspec.convert(written, Mapping[str, float | WrittenArm]))
