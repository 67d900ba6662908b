"""The leader of a trial in mode shares: it takes devices' reports in, and adds them up with the helper, batch by batch.

Reports wait in memory until a cohort has come. The helper adds its halves up first. Once it has, the leader does, in
the transaction that marks the report numbers as used. Whatever crashes in between, devices send again what is not
durable, and the digest in the leader's next request tells the helper what counts (`Summands`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from foldaway.account.account import Durable
from foldaway.account.pace import Pace
from foldaway.errors import Conflict, FoldawayError, IngestError, MessageError, StateError, Unavailable, instead_of
from foldaway.federated.messages import Agreed, HelpersHalf, Kind, ReportBatch, SplitSums, Stage
from foldaway.federated.modes.share import ServerShare
from foldaway.federated.replies.published import Published
from foldaway.federated.summands.summands import Half
from foldaway.federated.summands.words import count_of, unpacked
from foldaway.keeping.cohort import Newcomers, may_write
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.service.collecting.device_inbox import DeviceInbox, Outcome
from foldaway.service.collecting.device_store import DeviceStore
from foldaway.service.collecting.pair import Partner
from foldaway.service.database.device_table import Arrivals, Known
from foldaway.service.database.store import Store

# Reports that wait in memory while the helper cannot be reached.
_MOST_WAITING = 100_000


class NotTaken(FoldawayError):
    """The helper does not take some of a batch, so none of it was added up."""

    def __init__(self, numbers: Iterable[bytes]) -> None:
        super().__init__("the helper could not open its half of some reports.")
        self.numbers = frozenset(numbers)


class AgreedStore(DeviceStore):
    """The leader's sums. What is written is what the helper has added up."""

    def __init__(self, store: Store, plan: Plan, shard: str, partner: Partner) -> None:
        super().__init__(store, plan, shard)
        self._partner = partner
        self.last = False

    def write(
        self, was: Durable[ServerShare, Arrivals], tallies: ServerShare, reached: Arrivals
    ) -> Durable[ServerShare, Arrivals]:
        """Have the helper add the batch up, then write.

        Raises:
            Conflict: Another process of this server has written in between; nothing was written.
            NotTaken: The helper does not take some of it; nothing was written.
            Unavailable: The helper cannot be reached, or refuses.
        """
        if self._shards.one(self._plan.name, self._shard).version != was.version:
            raise Conflict("another process of the leader has added reports up; those not yet durable must come again.")
        before = was.tallies.split
        (numbers, halves, reports), (_, gone, out) = map(_apart, (reached.waiting, reached.leaving))
        batch = ReportBatch(before.batch + 1, before.digest, reports, out, self.last)
        with instead_of(IngestError, lambda refused: Unavailable(str(refused))):  # which no device is to blame for
            agreed = self._partner.ask("batches", batch, Agreed)
        if agreed.left_out:
            raise NotTaken(numbers[place] for place in agreed.left_out if 0 <= place < len(numbers))
        if agreed.digest != before.after(halves, gone):
            raise StateError("the helper has added up other reports than the leader has sent.")
        now = tallies.copy()
        now.split.batch, now.split.digest = before.batch + 1, agreed.digest
        return super().write(was, now, reached)


class LeaderInbox(DeviceInbox):
    """Takes devices' messages into the leader's account."""

    def __init__(self, store: Store, plan: Plan, shard: str, pace: Pace | None, partner: Partner) -> None:
        self._place = AgreedStore(store, plan, shard, partner)
        super().__init__(store, plan, shard, pace, self._place)
        self._partner = partner
        self._left_by_helper = set[bytes]()

    def commit_if_due(self, *, on_tick: bool = True) -> None:
        """Commit if a cohort has come together, and has waited long enough."""
        self._without_left_out(partial(super().commit_if_due, on_tick=on_tick))

    def finish(self) -> None:
        """Commit all that waits: the trial ends with it, and nothing of it is kept."""
        self._place.last = True
        try:
            while self.pending or self.arrivals.waiting or self.arrivals.leaving:
                self._without_left_out(self.account.commit)
        finally:
            self._place.last = False  # if the end fails, the trial goes on
        if self._left_by_helper:
            self._shards.leave_out(self.plan.name, self.shard, len(self._left_by_helper))
            self._left_by_helper.clear()

    def _without_left_out(self, commit: Callable[[], None]) -> None:
        try:
            commit()
        except NotTaken as left_out:
            arrivals = self.arrivals
            self._left_by_helper |= left_out.numbers
            self.account.fall_back()
            for number, (half, forwarded) in arrivals.waiting.items():
                if number not in left_out.numbers:
                    self._await(half, forwarded, arrivals.used[number])
            for half, forwarded in arrivals.leaving.values():
                self._let_go(half, forwarded)
            if may_write(self.plan.privacy, self.account.live.newcomers):
                self.account.commit()

    def _await(self, half: Half, forwarded: HelpersHalf, report: bytes) -> None:
        """Let a report that was given up wait again."""
        live = self.account.live
        live.split.add([half])
        live.joins(half.arm)
        self.arrivals.add(half.number, forwarded.arm, report)
        self.arrivals.waiting[half.number] = half, forwarded
        self.account.came(Newcomers(1, 1))

    def _let_go(self, half: Half, forwarded: HelpersHalf) -> None:
        """The same of a report that is to be taken out."""
        live = self.account.live
        out = live.out = live.out or ServerShare.of(self.plan)
        out.split.add([half])
        out.joins(half.arm)
        self.arrivals.take_out(half.number, forwarded.arm)
        self.arrivals.leaving[half.number] = half, forwarded
        self.account.came(Newcomers(1, -1 if self.plan.privacy.cohort > 1 else 1))

    def _answered(self, kind: Kind, number: bytes, stage: Stage, known: dict[bytes, Known]) -> Outcome | None:
        if number in self._left_by_helper:
            return MessageError("the helper could not open its half of this report, so neither server counts it.")
        answered = super()._answered(kind, number, stage, known)
        if answered is None and self.pending >= _MOST_WAITING:
            return Unavailable("too many reports wait for the helper, which cannot be reached; try again later.")
        return answered

    def _checked(self, message: SplitSums, number: bytes, published: Published | None) -> Floats:
        """Open the leader's half, add it to what is pending, and let the helper's wait beside it."""
        form = super()._checked(message, number, published)
        half, forwarded = self._halves(number, message)
        self.account.live.split.add([half])
        self.arrivals.waiting[number] = half, forwarded
        return form

    def _halves(self, number: bytes, message: SplitSums) -> tuple[Half, HelpersHalf]:
        words = unpacked(self._partner.open(message, message.group, message.leader), count_of(self.plan))
        half = Half(number, self.account.live.code(message.arm), message.group, words)
        return half, HelpersHalf(message.number, message.arm, message.group, message.helper)

    def _fold_out(self, out: ServerShare, gone: Mapping[bytes, SplitSums]) -> None:
        for number, message in gone.items():
            half, forwarded = self._halves(number, message)
            out.split.add([half])
            out.joins(half.arm)
            if self.arrivals.waiting.pop(number, None) is None:  # the helper has it
                self.arrivals.leaving[number] = half, forwarded


def _apart(
    halves: Mapping[bytes, tuple[Half, HelpersHalf]],
) -> tuple[list[bytes], list[Half], list[HelpersHalf]]:
    """The numbers, what this server has of these reports, and what the helper is to have."""
    return list(halves), [half for half, _ in halves.values()], [forwarded for _, forwarded in halves.values()]
