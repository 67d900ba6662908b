"""The columns that a plan reads, and the refusal of data that lacks one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from foldaway.errors import RecordError
from foldaway.plan import Plan
from foldaway.sources.formats.chunk import Chunk, WantedColumns
from foldaway.sources.formats.paths import Stdin


def wanted_by(plan: Plan) -> WantedColumns:
    """The columns that a plan reads, by role.

    Example:
        >>> plan = Plan(name="demo", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], unit="id")
        >>> wanted_by(plan)
        WantedColumns(numeric=('y',), text=('group', 'id'))
    """
    categorical = [name for name in plan.covariates if name in plan.levels]
    numeric = [name for name in (*plan.outcomes, *plan.covariates, plan.weight) if name and name not in categorical]
    text = [name for name in (plan.arm, *categorical, plan.unit) if name]
    return WantedColumns(tuple(numeric), tuple(text))


def require_columns(wanted: Sequence[str], names: Sequence[str]) -> None:
    """Refuse data without one of the wanted columns, or with one of them twice.

    Raises:
        RecordError: It has.
    """
    for rule, wrong in (
        ("no column", [name for name in wanted if name not in names]),
        ("more than one column", [name for name in wanted if names.count(name) > 1]),
    ):
        if wrong:
            raise RecordError(f"the data has {rule} {', '.join(map(repr, wrong))}; nothing was folded.")


def require_wanted(path: Path | Stdin, wanted: WantedColumns, chunk: Chunk) -> None:
    """Refuse a file without one of the wanted columns.

    Raises:
        RecordError: It has not all of them.
    """
    missing = [name for name in wanted.names if name not in chunk.records.schema.names]
    if not missing:
        return
    hint = (
        " Is it separated by commas, with the names in the first line? If not, name the delimiter."
        if len(missing) > 1
        else ""
    )
    listed = ", ".join(map(repr, missing))
    raise RecordError(f"{path} has no column {listed}; nothing of it was folded.{hint}")
