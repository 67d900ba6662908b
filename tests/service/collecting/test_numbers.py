"""A producer's batches are folded in their order, each once, whichever server has made the last ones durable."""

from __future__ import annotations

import pytest

import foldaway as fa
from foldaway.errors import SequenceGap
from foldaway.service.collecting.numbers import Numbers, Sequences
from plans import SMALL
from stores import Place

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
    before = sequences.copy()
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
