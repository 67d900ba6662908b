"""Mode sums: a device draws a group at random and sends sums; the coordinator keeps sums by arm and group."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np

from foldaway.effects import Effects
from foldaway.effects.group_analysis import effects_of_groups
from foldaway.errors import MessageError, many
from foldaway.federated.messages import MOST_RECORDS, Coefficients, GroupSums, encoded, packed, unpacked
from foldaway.federated.modes.mode import Holding, longest_arm
from foldaway.federated.modes.one_round import OneRound, largest_notes, missing_notes
from foldaway.federated.modes.share import Devices, Share
from foldaway.federated.replies.published import Published
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.tallies import Grouped
from foldaway.tallies.predictor import predictor_of


class SumsByGroup(OneRound):
    """A device keeps its group, a count and sums: enough for means, adjusted by the plan's coefficients."""

    name = "sums"
    reports = GroupSums

    def take_in(self, plan: Plan, sums: bytes, record: Floats) -> bytes:
        """The group, which the first record draws for good, and the sums with one more record's y and ỹ."""
        k = len(plan.regressors)
        x, y = record[1:k], record[k:-1]
        predictor = predictor_of(plan)
        columns = y if predictor is None else np.append(y, predictor.adjusted(x[:, None], y[:, None])[:, 0])
        group, before = (secrets.randbelow(plan.groups), 0.0) if not sums else _read(plan, sums)
        return packed(np.append(group, before + columns))

    def report(self, plan: Plan, holding: Holding, published: Coefficients | None) -> GroupSums:
        """The group and the sums."""
        group, sums = _read(plan, holding.sums)
        return GroupSums(holding.number, holding.arm, holding.n, group, packed(sums))

    def check(self, share: Share, message: GroupSums, published: Published | None) -> Floats:
        """The sums, if the plan has the message's arm, group and columns."""
        share.require_few(message)
        if message.group >= share.plan.groups:
            raise MessageError("the message names a group that the plan has not.")
        sums = unpacked(message.sums, _columns(share.plan))
        share.require_usual((sums / message.n) ** 2)
        bounds = {o: ends for o, v in enumerate(share.plan.values) if (ends := v.bounds(share.plan.bounds)) is not None}
        share.require_within(sums[list(bounds)] / message.n, list(bounds.values()))
        if share.plan.release is not None and (predictor := predictor_of(share.plan)) is not None:
            y, tilde = np.split(sums / message.n, 2)
            share.require_within(y - tilde, np.asarray(predictor.reach))
        return sums

    def fold(
        self, share: Share, messages: Sequence[GroupSums], values: Sequence[Floats], published: Published | None
    ) -> None:
        """Add them up by arm and group."""
        share.fold_sums(messages, values)

    def results(
        self, share: Share, devices: Devices, published: Published | None, *, rounded: bool = True
    ) -> tuple[Effects, None]:
        """Those of sums by group, with a note on who is missing from them."""
        trial, units = share.trial, dict(zip(share.plan.arms, share.devices, strict=True))
        assert isinstance(trial.tallies, Grouped)
        tallies, plan = trial.tallies, share.plan
        notes = [*missing_notes(plan, devices, rounded=rounded), *largest_notes(share)]
        if plan.release is not None:  # counts of devices are exact, and a release tells nothing that is
            return effects_of_groups(plan, tallies, trial.dropped, rounded=rounded), None
        return effects_of_groups(plan, tallies, trial.dropped, rounded=rounded, units=units, notes=notes), None

    def described(self, plan: Plan) -> str:
        """The group, the count and the sums."""
        (message,) = self.longest(plan)
        sums, size = many(_columns(plan), "sum"), many(len(encoded(message)), "byte")
        return (
            f"a device draws one of {plan.groups:,} groups at random. It keeps that, a count and {sums}, and no "
            f"record. It sends them once, in at most {size}. Where an arm's group has one device, the coordinator "
            f"keeps that device's sums: have several times {len(plan.arms) * plan.groups:,} devices, or fewer `groups`."
        )

    def longest(self, plan: Plan) -> Sequence[GroupSums]:
        """The sums of as many records as a message may be of, in the last group."""
        return [GroupSums(bytes(16), longest_arm(plan), MOST_RECORDS, plan.groups - 1, bytes(8 * _columns(plan)))]


def _columns(plan: Plan) -> int:
    """How many sums there are: of each outcome and, with coefficients, of its ỹ."""
    return len(plan.values) * (1 if plan.coefficients is None else 2)


def _read(plan: Plan, kept: bytes) -> tuple[int, Floats]:
    """The group and the sums that a device keeps."""
    group, *sums = unpacked(kept, 1 + _columns(plan))
    return int(group), np.array(sums)
