"""Mode scores, the paper's own: devices reply to the coefficients that are published when the trial ends.

Until then a device keeps its records and sends their moments, which the coefficients are fitted to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from foldaway.effects import Effects
from foldaway.effects.door import TOLD, Door
from foldaway.effects.from_moments import MomentsRead as Reading
from foldaway.effects.reading import effects_of
from foldaway.errors import MessageError, TooEarly, many
from foldaway.federated.messages import (
    MOST_RECORDS,
    DeviceMessage,
    DeviceMoments,
    Model,
    ScoreReply,
    encoded,
    packed,
    unpacked,
)
from foldaway.federated.modes.mode import Mode, longest_arm
from foldaway.federated.modes.share import Devices, ServerShare
from foldaway.federated.replies.integrity import Integrity, integrity
from foldaway.federated.replies.models import read_as, segments
from foldaway.federated.replies.published import Published
from foldaway.federated.replies.tally import Replies, scored_arms
from foldaway.numerics.block import Block, Floats
from foldaway.plan import Plan
from foldaway.plan.reported import estimators_of


class ScoresAtTheEnd(Mode):
    """Scores are collected at the end and not kept before: the coordinator needs second moments alone."""

    name = "scores"
    reports = ScoreReply

    def check(self, share: ServerShare, message: Any, published: Published | None) -> Floats:
        """Scores, if they can be those of an arm's records; or the factor in moments."""
        if not isinstance(message, ScoreReply):
            return super().check(share, message, published)
        if published is None:
            raise TooEarly("replies are taken once the trial is ending: ask for the coefficients first.")
        most = published.most_scores[share.code(message.arm)]
        values = unpacked(message.scores, len(most))
        if np.any(np.abs(values) > most):
            raise MessageError("the message's scores are larger than the arm's own records allow.")
        return values

    def fold(
        self, share: ServerShare, messages: Sequence[Any], values: Sequence[Floats], published: Published | None
    ) -> None:
        """Add replies up, by arm; or take moments in."""
        if published is None or not messages or isinstance(messages[0], DeviceMoments):
            super().fold(share, messages, values, published)
            return
        sums = published.no_replies() if share.replies is None else list(share.replies)
        codes = [share.code(message.arm) for message in messages]
        for place in set(codes):
            mine = [scores for code, scores in zip(codes, values, strict=True) if code == place]
            sums[place] = sums[place].fold(Block(np.column_stack(mine)))
        share.replies = sums

    def results(
        self, share: ServerShare, devices: Devices, published: Published | None, door: Door = TOLD
    ) -> tuple[Effects, Integrity]:
        """From the moments that were published, and errors from the replies, if these add up to them."""
        assert published is not None, "there are no effects before anything is published"
        plan = share.plan
        replies = published.no_replies() if share.replies is None else share.replies
        included = dict(zip(plan.arms, share.devices, strict=True))
        silent = {arm: max(n - heard.n, 0) for (arm, n), heard in zip(included.items(), replies, strict=True)}
        judged = integrity(published.arms, replies, silent)
        # If the replies add up to the moments nobody is missing from them, whatever the counts say: no scaling.
        complete = judged.verdict == "all here"
        counted = [heard.n for heard in replies] if complete else share.devices
        notes = [*_reply_notes(devices, included, {} if complete else silent, door), str(judged)]
        scored = scored_arms(plan, published.arms, replies, counted)
        effects = effects_of(
            plan, share.trial.dropped, door, moments=Reading(plan, published.arms, scored=scored), notes=notes
        )
        return effects, judged

    def described(self, plan: Plan) -> str:
        """The moments before the end, and the reply after."""
        factor, answer = self.longest(plan)
        sums = _no_replies(plan)
        return (
            f"a device keeps its records until the end. Before, it sends moments of those that are new, "
            f"{many(len(factor.factor) // 8, 'number')} in at most {many(len(encoded(factor)), 'byte')} each time; at "
            f"the end, as its reply, its scores, {many(sums.sums.size, 'number')} in at most "
            f"{many(len(encoded(answer)), 'byte')}. The coordinator keeps sums of the replies, "
            f"{len(plan.arms) * (sums.sums.size + sums.products.size):,} numbers."
        )

    def longest(self, plan: Plan) -> tuple[DeviceMoments, DeviceMessage]:
        """The moments of as many records as a message may be of, and the reply to all models of the plan."""
        arm, columns = longest_arm(plan), len(plan.columns)
        factor = DeviceMoments.of(bytes(16), arm, MOST_RECORDS, np.zeros((columns, columns)), first=False)
        return factor, ScoreReply(bytes(16), arm, packed(_no_replies(plan).sums))


def _no_replies(plan: Plan) -> Replies:
    """The sums of no replies to all models of the plan."""
    names = estimators_of(plan)
    models = [Model(name, o, *read_as(plan, name), []) for o in range(len(plan.values)) for name in names]
    return Replies.empty(segments(models))


def _reply_notes(devices: Devices, included: Mapping[str, int], silent: Mapping[str, int], door: Door) -> Iterator[str]:
    """There are two ways to be missing: before the coefficients, and after. Counts are like the others beside them."""
    told = door.devices
    enrolled, inside = sum(devices.enrolled.values()), sum(included.values())
    by_arm = ", ".join(f"{arm} {told(devices.reported[arm]):,} of {told(n):,}" for arm, n in included.items())
    yield (
        f"Devices: {told(enrolled):,} enrolled, {told(inside):,} with records in the effects, "
        f"{told(sum(devices.reported.values())):,} replied ({by_arm}).{door.caveat}"
    )
    if (never := enrolled - inside) > 0:
        yield (
            f"Not in the effects: {many(told(never), 'enrolled device')}, which sent no moments before the end, or "
            "whose moments waited for a cohort then and were left out. If who sends depends on the arm or on the "
            "outcomes, the effects are biased."
        )
    if gone := sum(silent.values()):
        yield (
            f"{many(told(gone), 'missing reply', 'missing replies')}: the effects hold these devices' "
            "records, but the errors are scaled up from those that have replied, as if the others were missing at "
            "random. If who replies depends on their outcomes, the errors are wrong."
        )
