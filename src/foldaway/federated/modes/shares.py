"""Mode shares: as mode sums, but a device sends its numbers in two halves, to servers that read them only together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from foldaway.effects import Effects
from foldaway.effects.door import TOLD, Door
from foldaway.errors import MessageError, many
from foldaway.federated.messages import PublishedSums, SplitSums, encoded
from foldaway.federated.modes.mode import Mode, longest_arm
from foldaway.federated.modes.share import Devices, ServerShare
from foldaway.federated.modes.sums import SumsByGroup
from foldaway.federated.replies.published import Published
from foldaway.federated.summands.publishing import LEAST_GROUPS, joined, publish
from foldaway.federated.summands.summands import Half
from foldaway.federated.summands.words import OVERHEAD, SEED, count_of
from foldaway.numerics.block import Floats
from foldaway.plan import Plan


class SumsInShares(Mode):
    """A device keeps a count and sums. No server sees them: not its own, which is one half, nor the other's."""

    name = "shares"
    reports = SplitSums

    def check(self, share: ServerShare, message: SplitSums, published: Published | None) -> Floats:
        """Nothing but the form: what is sealed is opened by whoever has a key, and random."""
        share.code(message.arm)
        share.require_group(message.group)
        sizes = 8 * count_of(share.plan) + OVERHEAD, SEED + OVERHEAD
        if (len(message.leader), len(message.helper)) != sizes:
            raise MessageError("the halves of the message are not as long as those of this plan.")
        # A scale keeps the sums of twice as many devices as were expected from overflowing.
        if share.plan.expected_units is not None and share.n >= 2 * share.plan.expected_units:
            raise MessageError("the trial has twice the devices that its plan expects, and takes no more reports.")
        return np.empty(0)

    def numbers(self, plan: Plan, message: SplitSums) -> Floats:
        """None that this server could read."""
        return np.empty(0)

    def fold(
        self, share: ServerShare, messages: Sequence[SplitSums], values: Sequence[Floats], published: Published | None
    ) -> None:
        """Count the devices; what was opened is added up by `add`."""
        for message in messages:
            share.joins(share.code(message.arm))

    def add(self, share: ServerShare, halves: Sequence[Half]) -> None:
        """Add up what this server has of reports."""
        share.split.add(halves)

    def joined(self, share: ServerShare, theirs: PublishedSums) -> ServerShare:
        """What both servers' sums come to, as a share of mode sums.

        Raises:
            StateError: They are not of the same reports.
        """
        ours, reports = publish(share.plan, share.split), share.split.reports
        trial, impossible = joined(share.plan, ours, theirs, reports)
        whole = ServerShare(trial, devices=share.devices, summands=share.summands)
        whole.impossible = impossible
        return whole

    def results(
        self, share: ServerShare, devices: Devices, published: Published | None, door: Door = TOLD
    ) -> tuple[Effects, None]:
        """Those of mode sums, with a note on groups that are left out."""
        effects, _ = SumsByGroup().results(share, devices, published, door)
        arms = list(share.plan.arms)
        notes = [
            f"Group {group} of the arm {arms[arm]} is left out: its devices cannot have the number of records that "
            "they claim together, so one of them at the least has sent wrong numbers."
            for arm, group in share.impossible
        ]
        return replace(effects, notes=[*effects.notes, *notes]), None

    def described(self, plan: Plan) -> str:
        """The group, the numbers and the two servers."""
        (message,) = self.longest(plan)
        assert plan.federated is not None
        leader, helper = plan.federated.pair
        return (
            f"a device draws one of {plan.groups:,} groups at random. It keeps a count and "
            f"{many(count_of(plan) - 1, 'sum')}, and no record. It splits each number into two random halves and sends "
            f"them once, in at most {many(len(encoded(message)), 'byte')}: one half is for {leader.url}, the other for "
            f"{helper.url}. Neither server can read a number; at the end both publish their sums, which give the "
            f"effects. There are no effects before, and none unless {LEAST_GROUPS} groups, small ones "
            f"added together, have {many(plan.privacy.smallest_cell, 'device')} of every arm (`smallest_cell`)."
        )

    def longest(self, plan: Plan) -> Sequence[SplitSums]:
        """The halves, in the last group."""
        leader, helper = bytes(8 * count_of(plan) + OVERHEAD), bytes(SEED + OVERHEAD)
        return [SplitSums(bytes(16), longest_arm(plan), plan.groups - 1, leader, helper)]
