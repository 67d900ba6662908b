"""Whose a producer's name is, over several servers of one database."""

from __future__ import annotations

import pytest

from foldaway.errors import IngestError, TrialClosed
from foldaway.service.collecting.producers import Producers
from foldaway.service.keys.tokens import issue
from stores import PLAN, Place

NAME = PLAN.name


def test_a_name_is_its_first_token_s_on_every_server_until_that_is_revoked(place: Place) -> None:
    store, elsewhere = place.open(), place.open()
    store.create_trial(PLAN, None)
    (first, _), (second, _) = issue("ingest", NAME), issue("ingest", NAME)
    store.tokens.add(first)
    store.tokens.add(second)
    here, there = Producers(store), Producers(elsewhere)
    assert not here.known(NAME, "till", first.id)
    here.claim(NAME, "till", first.id)
    assert here.known(NAME, "till", first.id)
    there.claim(NAME, "till", first.id)
    for producers in (here, there):
        with pytest.raises(IngestError) as refused:
            producers.claim(NAME, "till", second.id)
        assert refused.value.status == 403
    # A claim is no batch: the first commit still begins at nothing, and whose the name is stays.
    assert store.shards.sequences(NAME) == {}
    store.shards.commit(NAME, "main", version=0, n=100, state=b"tallies", sequences={"till": (0, 3), "mine": (0, 1)})
    assert there.durable_sequence(NAME, "till", first.id) == 3
    assert there.durable_sequence(NAME, "mine", second.id) == 1  # nobody's
    with pytest.raises(IngestError):
        there.durable_sequence(NAME, "till", second.id)
    store.tokens.revoke(first.id)
    there.claim(NAME, "till", second.id)
    assert store.shards.producer(NAME, "till") == (3, second.id)
    store.close_trial(NAME, "{}")
    with pytest.raises(TrialClosed):
        here.claim(NAME, "another", second.id)
    for each in (store, elsewhere):
        each.close()
