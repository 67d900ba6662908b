"""What a federated plan asks of its devices and of the coordinator, in sentences for a person."""

from __future__ import annotations

from collections.abc import Iterator

from foldaway.errors import many
from foldaway.federated.modes import mode_of
from foldaway.keeping import cohort
from foldaway.plan import Plan
from foldaway.tallies import empty_holding

_TIMES = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


def described(plan: Plan) -> list[str]:
    """Paragraphs about a federated plan; none about any other.

    Example:
        >>> plan = Plan(name="demo", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], federated="delta")
        >>> for sentence in described(plan)[0].split(". "):
        ...     print(sentence)
        Federated, delta: a device keeps a count and 1 sum, and no record
        It sends them once, in at most 40 bytes.
    """
    if plan.federated is None:
        return []
    mode = mode_of(plan)
    return [
        f"Federated, {mode.name}: {mode.described(plan)}",
        " ".join(_counted(plan)),
        " ".join(_kept_for(plan)),
        f"Kept on the coordinator: {empty_holding(plan).size:,} numbers about the records, however many there are, "
        "and a hash of each message's random number.",
    ]


def _counted(plan: Plan) -> Iterator[str]:
    """What is counted in devices."""
    privacy, replies = plan.privacy, mode_of(plan).replies
    yield f"The coordinator stores tallies after every {many(privacy.cohort, 'message')} of devices (`cohort`)."
    if replies:
        yield "Moments that wait for others to complete a cohort when the trial begins to close are left out."
    yield (
        f"At the {'end' if replies else 'close'}, {'replies' if replies else 'reports'} that wait on the server that "
        f"closes the trial count{'' if replies else ' if a cohort has come since effects were last shown'}. Those that "
        "wait on other servers are left out."
    )
    if replies:
        least = many(cohort.least_to_publish(privacy), "device")
        yield f"Nothing is published to devices unless every arm has moments of {least}."
    fewest = many(privacy.smallest_cell, "device")
    yield f"There are no effects unless every arm has reports of {fewest} (`smallest_cell`)."


def _kept_for(plan: Plan) -> Iterator[str]:
    """How long replies are waited for, and records kept."""
    if plan.federated is not None and mode_of(plan).replies:
        yield (
            f"Replies count for {_time(plan.federated.reply_deadline)} after the close (`reply_deadline`), or until "
            f"{100 * plan.federated.reply_share:.4g} % of the devices in the coefficients have replied (`reply_share`)."
        )
    days = _time(plan.privacy.retention)
    yield f"A device deletes what it keeps {days} after its first record (`retention`), sent or not."


def _time(seconds: float) -> str:
    """In the largest unit that is not longer."""
    unit, size = next((unit, size) for unit, size in _TIMES if seconds >= size)
    count = f"{seconds / size:.4g}"
    return f"{count} {unit}{'' if count == '1' else 's'}"
