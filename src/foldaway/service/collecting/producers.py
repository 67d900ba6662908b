"""Whose a producer's name is: the token's that first used it, on whichever server."""

from __future__ import annotations

from foldaway.errors import IngestError
from foldaway.service.database.store import Store

_MOST_KNOWN = 100_000


class Producers:
    """Keeps anyone who holds another token from taking a producer's next number.

    Such a batch would be counted as the producer's, and the producer's own acknowledged as a repetition. A name is free
    again once its token is revoked.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: set[tuple[str, str, str]] = set()

    def known(self, trial: str, producer: str, token: str) -> bool:
        """Whether the name is known to be this token's without a look at the database."""
        return (trial, producer, token) in self._known

    def claim(self, trial: str, producer: str, token: str) -> None:
        """Make sure that the name is this token's, which it becomes if it is nobody's.

        Raises:
            IngestError: 403, it is another's.
            TrialClosed: The trial takes no more records.
        """
        self._require(self._store.shards.claim(trial, producer, token), token)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known.add((trial, producer, token))

    def durable_sequence(self, trial: str, producer: str, token: str) -> int:
        """Where a producer should go on from."""
        durable, owner = self._store.shards.producer(trial, producer)
        self._require(owner or token, token)
        return durable

    def _require(self, owner: str, token: str) -> None:
        if owner != token:
            raise IngestError(
                403,
                "this producer's name belongs to the token that first used it, which is not yours. Use another name; "
                "an administrator can free the name by revoking that token.",
            )
