"""The plan, with what is assumed in it and what else could be done."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from foldaway.errors import PlanError, RecordError, many
from foldaway.plan import Outcome, Plan
from foldaway.plan.analysis import SLIPS
from foldaway.planning.drafting.arms import FEWEST_RECORDS, arms_in, spellings
from foldaway.planning.drafting.assumed import assumptions, slips
from foldaway.planning.drafting.look import SeenRecords


class Draft(NamedTuple):
    """A first plan, and a sentence for each thing that is assumed in it."""

    plan: Plan
    assumed: list[str]

    def to_toml(self) -> str:
        """The plan as a file, with what is assumed and what no data can tell as comments."""
        # What a plan says outside tables stands before them.
        settings, table, rest = self.plan.to_toml().partition("\n[")
        comments = [f"# {sentence}" for sentence in self.assumed]
        return "\n".join([*comments, "", settings, *_unsaid(self.plan), table + rest])


def draft(look: SeenRecords, name: str, control: str | None = None) -> Draft:
    """A plan for the records that were looked at.

    Raises:
        FoldawayError: The columns cannot be what they are said to be.

    Example:
        >>> import pyarrow as pa
        >>> from foldaway.plan import Mean
        >>> from foldaway.planning.drafting.look import SeenRecords, Roles
        >>> look = SeenRecords(Roles("arm", [Mean("y")]))
        >>> look.add(pa.record_batch({"arm": ["new", "old"] * 60, "y": [1.5, 2.0] * 60}))
        >>> draft(look, "first").plan.arms
        {'old': 0.5, 'new': 0.5}
    """
    roles = look.roles
    if not look.arms:
        raise RecordError(f"there are no records with an arm in {roles.arm!r}.")
    arms = arms_in(roles.arm, look.arms, control)
    levels = {column: _levels(look, column) for column in roles.levels}
    _require_usable(look)
    units = look.units(arms.codes)
    # Where many units are in several arms, arms were not drawn by unit but within it, record by record.
    within = units is not None and units.in_several_arms > SLIPS * units.number
    one_each = units is not None and units.number == sum(look.arms[values[0]] for values in arms.values.values())
    faulty = [*slips(look, arms, None if within else units)]
    few = sum(slip.records for slip in faulty) <= SLIPS * look.records
    plan = Plan(
        name=name,
        arm=roles.arm,
        arms={arm: _written(arm, spellings(values), 1 / len(arms.values)) for arm, values in arms.values.items()},
        outcomes=[_outcome(look, outcome) for outcome in roles.outcomes],
        covariates=[_listing(column, levels) for column in roles.covariates],
        segments=[_listing(column, levels) for column in roles.segments],
        unit=None if within else roles.unit,
        cluster=roles.unit if within else None,
        records_per_unit="one" if one_each else "many",
        expected_units=_rounded(units.number if units is not None and not within else look.records),
        drop_limit=SLIPS if faulty and few else 0,
    )
    return Draft(plan, list(assumptions(look, plan, arms, units, faulty, control=control)))


def _written(arm: str, values: list[str], share: float) -> float | dict[str, object]:
    return share if values == [arm] else {"share": share, "values": values[0] if len(values) == 1 else values}


def _rounded(number: int) -> int:
    """About as many, in two digits: a plan says what to expect, and no file's exact number."""
    return round(number, 2 - len(str(number))) if number > 99 else max(number, 1)


def _listing(column: str, levels: Mapping[str, list[str]]) -> dict[str, object]:
    """The column as a plan has it, with its levels if it has some."""
    return {"column": column, "levels": levels.get(column)}


def _levels(look: SeenRecords, column: str) -> list[str]:
    """Those that were asked for, or all that several records have, whose others are then unlisted."""
    listed = look.roles.levels[column]
    if listed is not None:
        return list(listed)
    found = sorted(level for level, n in look.levels[column].items() if n >= FEWEST_RECORDS)
    look.unlisted[column] = sum(n for n in look.levels[column].values() if n < FEWEST_RECORDS)
    if len(found) < 2:
        raise PlanError(
            f"{column!r} does not look categorical: it should have two or more levels, each in several records."
        )
    return found


def _outcome(look: SeenRecords, outcome: Outcome) -> Outcome:
    lacking = any(look.missing[column] for column in outcome.columns)
    return msgspec.structs.replace(outcome, missing="allowed") if lacking else outcome


def _require_usable(look: SeenRecords) -> None:
    """Refuse columns of which more values are wrong than single slips would be."""
    roles = look.roles
    for column, n in (look.texts + look.unlisted).items():
        if n <= SLIPS * look.records:
            continue
        of = f"{n:,} of {many(look.records, 'record')}"
        if column in roles.levels:
            raise PlanError(f"{of} have a value of {column!r} {_of_no_level(column, roles.levels[column])}")
        if column in roles.measured:
            raise PlanError(
                f"the outcome {column!r} is not a number in {of}; write yes and no as 1 and 0, and leave the field "
                "empty where there is no value."
            )
        raise PlanError(
            f"the covariate {column!r} is not a number in {of}; if it is categorical, list its levels: --levels "
            f"'{column}=first,second,third', or --levels '{column}=all'."
        )


def _of_no_level(column: str, listed: Sequence[str] | None) -> str:
    if listed is None:
        return "that no other record has: is it categorical?"
    return (
        f"that is none of the levels {', '.join(map(repr, listed))}: name every level, spelled exactly as in the file, "
        f"including capitals and spaces; or take all that there are, with --levels '{column}=all'."
    )


def _unsaid(plan: Plan) -> list[str]:
    """Comments that show how to write what no file can tell."""
    told = [
        _toml({**_table(outcome), "better": "higher"} if i == 0 else outcome.written())
        for i, outcome in enumerate(plan.outcomes)
    ]
    lines = [
        "# To say which direction is better, write an outcome as a table, here the first:",
        f"# outcomes = [{', '.join(told)}]",
        "# With `margin = 0.5` in the table, the question is whether the outcome is not worse by more than that.",
    ]
    if not plan.segments:
        segment = json.dumps(next(iter(plan.levels), "COLUMN"), ensure_ascii=False)
        lines += ["# To get effects within the levels of a column as well:", f"# segments = [{segment}]"]
    return lines


def _table(outcome: Outcome) -> dict[str, object]:
    written = outcome.written()
    return {"kind": outcome.KIND, "column": written} if isinstance(written, str) else written


def _toml(written: object) -> str:
    """A value on one line, as TOML writes it."""
    if isinstance(written, dict):
        return "{" + ", ".join(f"{name} = {_toml(value)}" for name, value in written.items()) + "}"
    return json.dumps(written, ensure_ascii=False)
