"""The numbers of batches: each producer counts its own, so that each batch is folded once; and whose a producer is."""

from __future__ import annotations

from typing import NamedTuple, Self

from foldaway.errors import IngestError, SequenceGap
from foldaway.service.database.shard_table import ShardTable

_MOST_KNOWN = 100_000


class Numbers(NamedTuple):
    """A batch's numbers: whose, the first and the last; mostly it has one."""

    producer: str
    first: int
    last: int


class Sequences:
    """How far each producer of a trial has come: in the database, and with batches that are pending here.

    Attributes:
        moves: Of each producer with batches that are pending here, the sequence that was durable before, and the last.
        unnumbered: Pending records of batches without a number, which nobody will send again.
    """

    def __init__(self, table: ShardTable, trial: str) -> None:
        self._table = table
        self._trial = trial
        self.moves: dict[str, tuple[int, int]] = {}
        self.unnumbered = 0

    def __copy__(self) -> Self:
        found = type(self)(self._table, self._trial)
        found.unnumbered = self.unnumbered
        found.moves = dict(self.moves)
        return found

    def durable(self, producer: str) -> int:
        """The last sequence of a producer that any server has made durable."""
        return self._table.sequences(self._trial, [producer]).get(producer, 0)

    def known(self, producer: str) -> tuple[int, int]:
        """A producer's last durable sequence, as pending batches are built upon it, and its last one here."""
        return self.moves.get(producer) or (self.durable(producer),) * 2

    def move(self, numbers: Numbers) -> tuple[int, int] | None:
        """What becomes of the producer's `moves` once this batch is folded; None if it has come before.

        Raises:
            SequenceGap: Batches before it are missing, or a part of it is there already.
        """
        before, last = self.known(numbers.producer)
        if numbers.last <= last:
            return None
        if numbers.first != last + 1:
            raise SequenceGap(last + 1)
        return before, numbers.last

    def moved_away(self, numbers: Numbers) -> bool:
        """Whether a producer with batches that are pending here was with another server in between."""
        if numbers.producer not in self.moves:
            return False
        before, last = self.moves[numbers.producer]
        return numbers.first > last + 1 and self.durable(numbers.producer) != before

    def overtaken(self) -> bool:
        """Whether another server has made batches of the same producers durable."""
        durable = self._table.sequences(self._trial, self.moves)
        return any(durable.get(producer, 0) != before for producer, (before, _) in self.moves.items())


class Producers:
    """Whose a producer's name is: the token's that first used it, on whichever server.

    Keeps anyone who holds another token from taking a producer's next number. Such a batch would be counted as the
    producer's, and the producer's own acknowledged as a repetition. A name is free again once its token is revoked.
    """

    def __init__(self, table: ShardTable) -> None:
        self._table = table
        self._known: set[tuple[str, str, str]] = set()

    def known(self, trial: str, producer: str, token: str) -> bool:
        """Whether the name is known to be this token's without a look at the database."""
        return (trial, producer, token) in self._known

    def claim(self, trial: str, producer: str, token: str) -> None:
        """Make sure that the name is this token's, which it becomes if it is nobody's.

        Raises:
            IngestError: 403, it is another's.
            TrialEnded: The trial takes no more records.
        """
        self._require(self._table.claim(trial, producer, token), token)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known.add((trial, producer, token))

    def durable_sequence(self, trial: str, producer: str, token: str) -> int:
        """Where a producer should go on from."""
        durable, owner = self._table.producer(trial, producer)
        self._require(owner or token, token)
        return durable

    def _require(self, owner: str, token: str) -> None:
        if owner != token:
            raise IngestError(
                403,
                "this producer's name belongs to the token that first used it, which is not yours. Use another name; "
                "an administrator can free the name by revoking that token.",
            )
