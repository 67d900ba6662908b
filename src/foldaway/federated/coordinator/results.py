"""The effects of a federated trial, and who is in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from foldaway.effects import Effects
from foldaway.effects.analysis import effects_of
from foldaway.federated.coordinator.collected import scored_arms
from foldaway.federated.coordinator.integrity import Integrity, integrity
from foldaway.federated.coordinator.share import Published, Share
from foldaway.plan import Plan


class Devices(msgspec.Struct, frozen=True):
    """Who is in a federated trial, by arm; units of sites count as devices.

    Attributes:
        enrolled: Devices that have joined.
        reported: Those whose report is durable.
    """

    enrolled: dict[str, int]
    reported: dict[str, int]

    @property
    def missing(self) -> dict[str, int]:
        """Devices that have joined and whose report is not here."""
        return {arm: max(n - self.reported[arm], 0) for arm, n in self.enrolled.items()}


def results(
    plan: Plan, share: Share, devices: Devices, published: Published | None = None
) -> tuple[Effects, Integrity | None]:
    """The effects, and in mode scores what the replies' sum says about them.

    Args:
        plan: The plan.
        share: All servers' shares together.
        devices: Who has joined and who has reported.
        published: In mode scores, what was published.
    """
    if published is None:
        notes = list(_missing_notes(devices))
        return effects_of(plan, share.trial.arms, share.trial.dropped, notes=notes), None
    replies = published.no_replies() if share.replies is None else share.replies
    included = dict(zip(plan.arms, share.devices, strict=True))
    silent = {arm: max(n - heard.n, 0) for (arm, n), heard in zip(included.items(), replies, strict=True)}
    judged = integrity(published.arms, replies, silent)
    # If the replies add up to the moments nobody is missing from them, whatever the counts say: no scaling.
    complete = judged.verdict == "all here"
    counted = [heard.n for heard in replies] if complete else share.devices
    notes = [*_reply_notes(devices, included, {} if complete else silent), str(judged)]
    scored = scored_arms(plan, published.arms, replies, counted)
    return effects_of(plan, published.arms, share.trial.dropped, scored=scored, notes=notes), judged


def _missing_notes(devices: Devices) -> Iterator[str]:
    enrolled, missing = sum(devices.enrolled.values()), sum(devices.missing.values())
    by_arm = ", ".join(f"{arm} {devices.reported[arm]:,} of {n:,}" for arm, n in devices.enrolled.items())
    yield f"Devices that have reported: {enrolled - missing:,} of {enrolled:,} enrolled ({by_arm})."
    if missing:
        yield (
            f"{missing:,} missing reports: their records are in no effect. If who reports depends on the arm or on "
            "the outcomes, the effects are biased."
        )


def _reply_notes(devices: Devices, included: Mapping[str, int], silent: Mapping[str, int]) -> Iterator[str]:
    """In mode scores there are two ways to be missing: before the coefficients, and after."""
    enrolled, inside = sum(devices.enrolled.values()), sum(included.values())
    by_arm = ", ".join(f"{arm} {devices.reported[arm]:,} of {n:,}" for arm, n in included.items())
    yield (
        f"Devices: {enrolled:,} enrolled, {inside:,} with records in the effects, "
        f"{sum(devices.reported.values()):,} replied ({by_arm})."
    )
    if (never := enrolled - inside) > 0:
        yield (
            f"{never:,} enrolled devices sent no moments before the close: their records are in no effect. If who "
            "sends depends on the arm or on the outcomes, the effects are biased."
        )
    if gone := sum(silent.values()):
        yield (
            f"{gone:,} missing replies: the effects hold these devices' records, but the errors are scaled up from "
            "those that have replied, as if the others were missing at random. If who replies depends on their "
            "outcomes, the errors are wrong."
        )
