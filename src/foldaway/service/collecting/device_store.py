"""One server's share of a federated trial in the database: tallies, and the numbers of the messages in them."""

from __future__ import annotations

from foldaway.account.account import AccountStore, Durable
from foldaway.federated.modes import mode_of
from foldaway.federated.modes.share import ServerShare
from foldaway.federated.replies.published import Published
from foldaway.plan import Plan
from foldaway.service.database.device_table import Arrivals
from foldaway.service.database.store import Store


class DeviceStore(AccountStore[ServerShare, Arrivals]):
    """This server's share of a federated trial. A commit marks the numbers of its messages as used."""

    def __init__(self, store: Store, plan: Plan, shard: str) -> None:
        self._shards, self._table = store.shards, store.devices
        self._plan, self._shard = plan, shard
        self._published: Published | None = None

    def read(self) -> Durable[ServerShare, Arrivals]:
        """What is durable, and the numbers of nothing pending."""
        row = self._shards.one(self._plan.name, self._shard)
        return Durable(ServerShare.of(self._plan, row.state, self.published()), Arrivals(), row.version)

    def write(
        self, was: Durable[ServerShare, Arrivals], tallies: ServerShare, reached: Arrivals
    ) -> Durable[ServerShare, Arrivals]:
        """Write the tallies, mark the messages' numbers as used, and count the reports, in one transaction.

        Reports that are withdrawn may be in shards of other servers, which go into this one then: from tallies without
        a device nothing can be taken out, and no shard may change by that device alone.

        Raises:
            TrialEnded: The trial takes no more of these messages.
        """
        emptied: dict[str, tuple[int, bytes]] = {}
        for shard in sorted(self._table.shards_of(self._plan.name, reached.out) - {self._shard}):
            row = self._shards.one(self._plan.name, shard)
            tallies = tallies.merge(ServerShare.of(self._plan, row.state, self.published()))
            emptied[shard] = row.version, ServerShare.of(self._plan).dumps()
        tallies = tallies.settled()
        version = self._table.commit(
            self._plan,
            self._shard,
            version=was.version,
            n=tallies.n,
            state=tallies.dumps(),
            arrivals=reached,
            emptied=emptied,
        )
        return Durable(tallies.copy(), Arrivals(), version)

    def going_on(self, durable: Durable[ServerShare, Arrivals], live: ServerShare) -> ServerShare:
        """What is durable: a write takes devices out, and may take in what other servers have."""
        return durable.tallies.copy()

    def published(self) -> Published | None:
        """What was published when the trial began to end, if the mode publishes anything."""
        if self._published is None and mode_of(self._plan).replies:
            data = self._table.published(self._plan.name)
            self._published = None if data is None else Published.loads(data, self._plan)
        return self._published
