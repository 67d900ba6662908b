"""What is assumed in a draft, what is wrong with records, and what else could be done about it, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from foldaway.errors import many
from foldaway.plan import Plan
from foldaway.plan.analysis import SLIPS
from foldaway.planning.drafting.arms import FEWEST_RECORDS, SeenArms, spellings
from foldaway.planning.drafting.look import SeenRecords, SeenUnits


class Slip(NamedTuple):
    """What records are faulty for, how many are, and what can be done about it."""

    what: str
    records: int
    instead: str = ""


def slips(look: SeenRecords, arms: SeenArms, units: SeenUnits | None) -> Iterator[Slip]:
    """What records are faulty for. An arm or a level that a single record has is not named: it might be a name."""
    for arm, values in arms.values.items():
        for value in (each for each in values if each not in spellings(values)):
            yield Slip(f'"{value}" may be a misspelling of "{arm}"', look.arms[value], "If you can, correct it.")
    for value, n in sorted(arms.rare.items()):
        if n >= FEWEST_RECORDS:
            an_arm = "If it is an arm, add it to [arms] and correct the probabilities."
            yield Slip(f'"{value}" is rare in {look.roles.arm} and may be a misspelling', n, an_arm)
    if unnamed := sum(n for n in arms.rare.values() if n < FEWEST_RECORDS):
        yield Slip(f"A value of {look.roles.arm} that occurs only once may be a misspelling", unnamed)
    for column, n in (+look.texts).items():
        yield Slip(f"Not a number in {column}", n, "If you can, correct them.")
    for column, n in (+look.unlisted).items():
        listed = look.roles.levels[column] is not None
        what = f"None of the listed levels of {column}" if listed else f"A level of {column} that occurs only once"
        yield Slip(what, n, "If they belong to the trial, add their levels.")
    for column in (*look.roles.named, *look.roles.numeric):
        if look.missing[column] and column not in look.roles.measured:
            yield Slip(f"Without a value of {column}", look.missing[column], "If you can, fill in the values.")
    if units is not None and units.in_several_arms:
        yield Slip(f"In several arms: {look.roles.unit} of some records", units.in_several_arms)


def assumptions(
    look: SeenRecords, plan: Plan, arms: SeenArms, units: SeenUnits | None, faulty: list[Slip], *, control: str | None
) -> Iterator[str]:
    """A sentence for each thing that is assumed in a plan for these records."""
    yield from _of_arms(arms, control)
    yield from _of_units(look, plan, units)
    yield (
        f"Assumed: about {many(plan.expected_units or 0, 'unit')}, as in this file (expected_units). If more are to "
        "come, write how many in all."
    )
    for column, levels in plan.levels.items():
        yield from (
            f"No record has the level {level!r} of {column}." for level in levels if not look.levels[column][level]
        )
    for column in look.roles.measured:
        if n := look.missing[column]:
            others = " Such records count for the other outcomes." if len(plan.outcomes) > 1 else ""
            yield (
                f"Without a value of {column}: {n:,} of {many(look.records, 'record')}. The plan allows this, and "
                f"results say whether the arms lack it alike.{others} If no value means 0, write 0 in the file."
            )
    for what, n, instead in faulty:
        yield f"{what}: {n:,} of {many(look.records, 'record')}. {instead}".rstrip()
    if faulty:
        yield (
            f"The plan leaves out and counts records with such faults (drop_limit = {SLIPS:g})."
            if plan.drops
            else "As it is, the plan rejects every batch with such a record. To leave such records out, write a "
            "drop_limit above their share of all records in the plan."
        )
    records = units is None or plan.cluster is not None
    number = look.records if units is None or records else units.number
    if number < plan.privacy.cohort:
        yield (
            f"The file has {many(number, 'record' if records else 'unit')}, fewer than a cohort "
            f"({plan.privacy.cohort}), so `foldaway run --save` stores nothing yet. If no more will come, set a "
            "smaller `cohort` under [privacy]."
        )


def _of_arms(arms: SeenArms, control: str | None) -> Iterator[str]:
    replace = "Replace these with the probabilities used for the allocation."
    yield f"Assumed: equal probabilities for {', '.join(arms.values)}. {replace}"
    for arm, values in arms.values.items():
        if others := spellings(values)[1:]:
            read = ", ".join(map(repr, others))
            yield f'Read as the arm "{arm}": {read}. If one of them is another arm, correct [arms].'
    if arms.renamed:
        named = ", ".join(f"{values[0]!r} is {arm}" for arm, values in arms.values.items())
        yield f"Named: {named}. Choose better names."
    if control is None:
        first = next(iter(arms.values.values()))[0]
        yield f'Assumed: "{first}" is the control arm (it is listed first); --control names another.'


def _of_units(look: SeenRecords, plan: Plan, units: SeenUnits | None) -> Iterator[str]:
    column = look.roles.unit
    if column is None:
        yield (
            "Assumed: each record is a unit of its own. If somebody has several records, name a --unit, or the errors "
            "would be too small."
        )
    elif units is None:
        yield f"There are too many values of {column} to see whether any has several records: the plan allows for it."
    elif plan.cluster is not None:
        yield (
            f"{units.in_several_arms:,} of {units.number:,} values of {column} have records in several arms, so "
            f"arms were not drawn by {column}. Assumed: they were drawn record by record (cluster = {column!r}). If "
            "something else was randomised, name its column as the plan's `unit`."
        )
    elif plan.one_each:
        yield (
            f'No two records of this file have the same {column}, so the plan says records_per_unit = "one". Delete '
            "that line if the same units may come back in later files: the errors would be too small."
        )
    else:
        means = [each.columns[0] for each in plan.outcomes if each.KIND == "mean" and each.missing == "refused"]
        yield f"The records are of {units.number:,} different values of {column}, and the errors allow for that." + (
            f' Means are per record; for totals per unit, write {{kind = "total", column = "{means[0]}"}} in outcomes.'
            if means
            else ""
        )
