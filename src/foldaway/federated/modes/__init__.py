"""The modes of a federated trial, one object each, and what they ask of devices and of the coordinator, in sentences.

A new one is a class here and a name in ``MODES``; its name and what it needs of a plan are a line of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator

from foldaway.errors import PlanError, many
from foldaway.federated.messages import MOST_BYTES, encoded
from foldaway.federated.modes.mode import Mode, SiteMode, longest_arm
from foldaway.federated.modes.one_round import Delta, OneMessage
from foldaway.federated.modes.scores import ScoresAtTheEnd
from foldaway.federated.modes.shares import SumsInShares
from foldaway.federated.modes.sums import SumsByGroup
from foldaway.keeping import cohort
from foldaway.plan import Plan
from foldaway.tallies import empty_holding

_MODES = (OneMessage(), ScoresAtTheEnd(), Delta(), SumsByGroup(), SumsInShares())

MODES: dict[str, Mode] = {mode.name: mode for mode in _MODES}
"""Every mode by its name in a plan."""

_TIMES = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))

# What other clients' JSON may need more than ours: blanks, and arms whose letters are escaped.
_SLACK, _ESCAPED = 128, 6


def mode_of(plan: Plan) -> Mode:
    """The mode of a federated plan.

    Raises:
        PlanError: The plan is not federated.

    Example:
        >>> mode_of(Plan(name="d", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], federated="scores")).replies
        True
    """
    if plan.federated is None:
        raise PlanError(f"the plan {plan.name} does not say what devices send: it needs `federated`.")
    return MODES[plan.federated.mode]


def site_mode_of(plan: Plan) -> SiteMode:
    """The mode of a federated plan for sites.

    Raises:
        PlanError: The plan is not for sites.
    """
    mode = None if plan.federated is None or plan.unit is None else mode_of(plan)
    if not isinstance(mode, SiteMode):
        raise PlanError(
            f'the plan {plan.name} is not for sites: it needs `unit` and `federated` = "sums"; or "one-message" with '
            '`records_per_unit = "together"`, a promise that all records of a unit are in one file.'
        )
    return mode


def most_bytes(plan: Plan) -> int:
    """How long a message of the plan's devices can be."""
    longest = max(len(encoded(message)) for message in mode_of(plan).longest(plan))
    return min(longest + _SLACK + _ESCAPED * len(longest_arm(plan).encode()), MOST_BYTES)


def described(plan: Plan) -> list[str]:
    """Paragraphs about a federated plan; none about any other.

    Example:
        >>> plan = Plan(name="demo", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], federated="delta")
        >>> for sentence in described(plan)[0].split(". "):
        ...     print(sentence)
        Federated, delta: a device keeps a count and 1 sum, and no record
        It sends them once, in at most 87 bytes.
    """
    if plan.federated is None:
        return []
    mode = mode_of(plan)
    return [
        f"Federated, {mode.name}: {mode.described(plan)}",
        " ".join(_of_sites(plan) if plan.sites_only else _counted(plan)),
        *([] if plan.sites_only else [" ".join(_kept_for(plan))]),
        f"Kept on the coordinator: {empty_holding(plan).size:,} numbers about the records, however many there are"
        f"{'' if plan.unit is None else ', and as many for each site'}; and a hash of each message's random number.",
    ]


def _counted(plan: Plan) -> Iterator[str]:
    """What is counted in devices."""
    privacy, replies = plan.privacy, mode_of(plan).replies
    yield f"The coordinator stores tallies after every {many(privacy.cohort, 'message')} of devices (`cohort`)."
    if plan.federated is not None and plan.federated.invited:
        yield "A device needs an invitation to join (`foldaway token invite`), which is good for one device."
    if plan.unit is not None:
        yield "It stores a site's tallies at once; each of its units counts as one message, and as one device."
    if replies:
        yield "Moments that wait for others to complete a cohort when the trial begins to end are left out."
    yield (
        f"At the end, {'replies' if replies else 'reports'} that wait on the server that "
        f"ends the trial count{'' if replies else ' if a cohort has come since effects were last shown'}. Those that "
        "wait on other servers are left out."
    )
    if replies:
        least = many(cohort.least_to_publish(privacy), "device")
        yield f"Nothing is published to devices unless every arm has moments of {least}."
    fewest = many(privacy.smallest_cell, "device")
    yield f"There are no effects unless every arm has reports of {fewest} (`smallest_cell`)."
    yield from _least_sites(plan)


def _of_sites(plan: Plan) -> Iterator[str]:
    """The same where only sites take part."""
    privacy = plan.privacy
    yield "The coordinator stores a site's tallies at once."
    fewest = f"{many(privacy.cohort, 'unit')} in all (`cohort`), and {privacy.smallest_cell:,} in every arm"
    yield f"There are no effects without {fewest} (`smallest_cell`)."
    yield from _least_sites(plan)


def _least_sites(plan: Plan) -> Iterator[str]:
    if plan.federated is not None and plan.federated.sites is not None:
        yield f"There are no effects before {many(plan.federated.sites, 'site')} reported (`federated.sites`)."


def _kept_for(plan: Plan) -> Iterator[str]:
    """How long replies are waited for, and records kept."""
    if plan.federated is not None and mode_of(plan).replies:
        yield (
            f"Replies count for {_time(plan.federated.reply_deadline)} after the end (`reply_deadline`), or until "
            f"{100 * plan.federated.reply_share:.4g} % of the devices in the coefficients have replied (`reply_share`)."
        )
    days = _time(plan.privacy.retention)
    yield f"A device deletes what it keeps {days} after its first record (`retention`), sent or not."


def _time(seconds: float) -> str:
    """In the largest unit that is not longer."""
    unit, size = next((unit, size) for unit, size in _TIMES if seconds >= size)
    count = f"{seconds / size:.4g}"
    return f"{count} {unit}{'' if count == '1' else 's'}"
