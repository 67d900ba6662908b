"""A producer's batches are folded in their order, each once, on whichever server; and a name is its first token's."""

from __future__ import annotations

from copy import copy

import pytest

import foldaway as fa
from foldaway.errors import IngestError, SequenceGap, TrialEnded
from foldaway.service.collecting.numbers import Numbers, Producers, Sequences
from foldaway.service.keys.tokens import Wanted, issue
from plans import SMALL
from stores import Place

pytestmark = pytest.mark.once

PLAN = fa.Plan(**SMALL)


def test_a_number_is_next_or_repeated_or_there_is_a_gap(folder: Place) -> None:
    store = folder.open()
    store.create_trial(PLAN, None)
    store.shards.commit(PLAN.name, "other", version=0, n=0, state=fa.Trial(PLAN).dumps(), sequences={"p": (0, 4)})
    sequences = Sequences(store.shards, PLAN.name)
    for last in (4, 6):  # what is durable, then what is pending here
        assert sequences.move(Numbers("p", last, last)) is None
        for first in (last, last + 2):
            with pytest.raises(SequenceGap) as gap:
                sequences.move(Numbers("p", first, last + 9))
            assert gap.value.expected == last + 1
        assert sequences.move(Numbers("p", last + 1, last + 2)) == (4, last + 2)
        sequences.moves["p"] = (4, 6)
    before = copy(sequences)
    sequences.moves["q"] = (0, 1)
    assert before.moves == {"p": (4, 6)}


def test_a_producer_that_goes_on_elsewhere_has_moved_away(folder: Place) -> None:
    store = folder.open()
    store.create_trial(PLAN, None)
    sequences = Sequences(store.shards, PLAN.name)
    sequences.moves["p"] = (0, 2)
    assert not sequences.moved_away(Numbers("p", 5, 5))  # a gap only
    assert not sequences.overtaken()
    store.shards.commit(PLAN.name, "other", version=0, n=0, state=fa.Trial(PLAN).dumps(), sequences={"p": (0, 4)})
    assert sequences.overtaken()
    assert [sequences.moved_away(Numbers(who, n, n)) for who, n in (("p", 5), ("p", 3), ("q", 5))] == [
        True,
        False,
        False,
    ]


def test_a_name_is_its_first_token_s_on_every_server_until_that_is_revoked(place: Place) -> None:
    store, elsewhere = place.open(), place.open()
    store.create_trial(PLAN, None)
    (first, _), (second, _) = issue(Wanted("ingest", PLAN.name)), issue(Wanted("ingest", PLAN.name, expires_in=3600))
    store.tokens.add(first)
    store.tokens.add(second)
    here, there = Producers(store.shards), Producers(elsewhere.shards)
    assert not here.known(PLAN.name, "till", first.id)
    here.claim(PLAN.name, "till", first.id)
    assert here.known(PLAN.name, "till", first.id)
    there.claim(PLAN.name, "till", first.id)
    for producers in (here, there):
        with pytest.raises(IngestError) as refused:
            producers.claim(PLAN.name, "till", second.id)
        assert refused.value.status == 403
    # A claim is no batch: the first commit still begins at nothing, and whose the name is stays.
    assert store.shards.sequences(PLAN.name) == {}
    store.shards.commit(
        PLAN.name, "main", version=0, n=100, state=b"tallies", sequences={"till": (0, 3), "mine": (0, 1)}
    )
    assert there.durable_sequence(PLAN.name, "till", first.id) == 3
    assert there.durable_sequence(PLAN.name, "mine", second.id) == 1  # nobody's
    with pytest.raises(IngestError):
        there.durable_sequence(PLAN.name, "till", second.id)
    store.tokens.revoke(first.id)
    there.claim(PLAN.name, "till", second.id)
    third, _ = issue(Wanted("ingest", PLAN.name))
    store.tokens.add(third)
    with pytest.raises(IngestError):
        there.claim(PLAN.name, "till", third.id)
    place.sql("UPDATE foldaway_tokens SET expires = 1 WHERE id = ?", second.id)
    there.claim(PLAN.name, "till", third.id)
    assert store.shards.producer(PLAN.name, "till") == (3, third.id)
    store.end_trial(PLAN.name, "{}")
    with pytest.raises(TrialEnded):
        here.claim(PLAN.name, "another", second.id)
    for each in (store, elsewhere):
        each.close()
