"""The helper of a trial in mode shares: it adds up what the leader forwards, and publishes its sums at the end."""

from __future__ import annotations

from collections import Counter
from functools import partial

import msgspec
import numpy as np

from foldaway.errors import Conflict, IngestError, MessageError, TrialEnded
from foldaway.federated.messages import Agreed, Closing, HelpersHalf, PublishedSums, ReportBatch
from foldaway.federated.modes.share import Devices, ServerShare
from foldaway.federated.summands.publishing import publish, why_not
from foldaway.federated.summands.summands import Half
from foldaway.federated.summands.words import SEED, count_of, expanded
from foldaway.plan import Plan
from foldaway.service.collecting.answers import Answer, Answers, Participation
from foldaway.service.collecting.pair import Partner
from foldaway.service.database.device_table import Arrivals, hashed, write_arrivals
from foldaway.service.database.outages import again_after
from foldaway.service.database.shard_table import ShardRow
from foldaway.service.database.store import Store


class HelperDesk:
    """Answers the leader of one trial. Nothing is in memory between two requests."""

    def __init__(self, store: Store, plan: Plan, shard: str, answers: Answers, partner: Partner) -> None:
        self._store, self._plan, self._shard = store, plan, shard
        self._answers, self._partner = answers, partner

    def add(self, batch: ReportBatch) -> Agreed:
        """Add a batch up, beside what is settled; what was asked before is answered as before.

        Raises:
            IngestError: It was overtaken by a later batch, or comes after one that is not here.
            MessageError: It has fewer reports than a cohort.
            TrialEnded: The trial takes no more.
        """
        if self._store.trial(self._plan.name).final is not None:
            raise TrialEnded(f"the trial {self._plan.name} has ended and takes no more reports.")
        row, share = self._read()
        arrivals = self._follow(share, batch.number, batch.after)
        known = self._store.devices.known(
            self._plan.name, [hashed(self._plan, each.number) for each in (*batch.reports, *batch.out)]
        )
        counted = {number for number, each in known.items() if each.used and not each.out} | arrivals.fresh
        halves: dict[bytes, Half] = {}
        left_out = []
        for place, report in enumerate(batch.reports):
            half = self._opened(share, report)
            if half is None or half.number in known or half.number in halves or half.number in counted:
                left_out.append(place)
            else:
                halves[half.number] = half
        out = [half for report in batch.out if (half := self._opened(share, report)) is not None]
        leaving = {half.number for half in out}
        if len(leaving) != len(batch.out) or not leaving <= counted - arrivals.out:
            raise MessageError("a report is to be taken out that is not in the sums.")
        digest = share.split.after(list(halves.values()), out)
        if left_out:  # the leader sends the others again
            return Agreed(left_out, digest)
        cohort = self._plan.privacy.cohort
        if not batch.last and cohort > 1 and len(halves) < cohort + len(out):
            raise MessageError("a batch needs reports of a cohort of devices; the leader has sent fewer.")
        held = len(share.split.candidates)
        share.split.propose(list(halves.values()), out)
        if arrivals.fresh or arrivals.out or len(share.split.candidates) != held:
            self._store.devices.commit(
                self._plan,
                self._shard,
                version=row.version,
                n=share.n,
                state=share.dumps(),
                arrivals=arrivals,
                emptied={},
            )
        return Agreed([], digest)

    @again_after(Conflict)
    def close(self, closing: Closing) -> PublishedSums | None:
        """End the trial and publish the sums, unless only its end is wanted; a second time the same ones.

        Raises:
            IngestError: Too few stand behind the sums; nothing was changed.
        """
        if (final := self._store.trial(self._plan.name).final) is not None:
            summands = msgspec.json.decode(final, type=Answer).summands
            if closing.publish and (summands is None or summands.digest != closing.digest):
                raise TrialEnded(f"the trial {self._plan.name} has ended here, and published nothing of these reports.")
            return summands
        row, share = self._read()
        arrivals = self._follow(share, closing.number + 1, closing.digest) if closing.publish else Arrivals()
        if closing.publish and (why := why_not(self._plan, share.split)) is not None:
            raise IngestError(409, f"nothing was published, because {why}.")
        self._end(row, publish(self._plan, share.split) if closing.publish else None, arrivals)
        return self.close(closing)

    def abandon(self) -> None:
        """End it without publishing anything, whatever the leader does."""
        self._end(self._read()[0], None, Arrivals())

    def _end(self, row: ShardRow, summands: PublishedSums | None, arrivals: Arrivals) -> None:
        """End the trial: what is published stays, and everything else is destroyed."""
        seen = self._store.devices.situation(self._plan)
        joined, reported = (
            Counter(each) + arrivals.reported for each in (seen.devices.enrolled, seen.devices.reported)
        )
        devices = Devices(*({arm: each[arm] for arm in self._plan.arms} for each in (joined, reported)))
        federated = Participation.of(self._plan, seen._replace(devices=devices))
        said = "published its sums" if summands is not None else "destroyed its sums and published nothing"
        federated = msgspec.structs.replace(federated, stage="ended", note=f"this server, the helper, has {said}.")
        answer = Answer.of(self._plan, None, None, None, federated, final=True)
        also = [partial(write_arrivals, trial=self._plan.name, arrivals=arrivals, shard=self._shard)]
        shards = [row] if row.version else []
        self._answers.end(msgspec.structs.replace(answer, summands=summands), None, shards, also)

    def _read(self) -> tuple[ShardRow, ServerShare]:
        row = self._store.shards.one(self._plan.name, self._shard)
        return row, ServerShare.of(self._plan, row.state)

    def _follow(self, share: ServerShare, number: int, after: bytes) -> Arrivals:
        """Take for added up what the leader has; what that makes durable."""
        settled = share.split.follow(number, after)
        if settled is None:
            return Arrivals()
        cells = np.frombuffer(settled.reports, dtype="<i8").reshape(share.split.reports.shape)
        counts = Counter(dict(zip(self._plan.arms, cells.sum(axis=1).tolist(), strict=True)))
        for code, arm in enumerate(self._plan.arms):
            share.joins(code, counts[arm])
        return Arrivals(fresh=set(settled.numbers), out=set(settled.out), reported=counts, enrolled=Counter(counts))

    def _opened(self, share: ServerShare, report: HelpersHalf) -> Half | None:
        """The helper's half of a report, if it is one."""
        try:
            arm = share.code(report.arm)
            share.require_group(report.group)
            seed = self._partner.open(report, report.group, report.helper)
        except MessageError:
            return None
        if len(seed) != SEED:
            return None
        number = hashed(self._plan, report.number)
        return Half(number, arm, report.group, expanded(seed, count_of(self._plan)))
