"""Errors travel: from a worker process, a cluster's executor, a service."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from foldaway import errors
from foldaway.records.faults import Fault, Faults, FaultyBatch

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.FoldawayError)]
ARGUMENTS: dict[type, tuple[Any, ...]] = {
    errors.SequenceGap: (17,),
    errors.IngestError: (415, "no such format."),
    errors.ServerError: ("refused.", 409, 3),
    FaultyBatch: (Faults([("a", 1)], [Fault("a", "y", "NaN", 1)]), 10, 4),
}


@pytest.mark.parametrize("kind", [*KINDS, FaultyBatch])
def test_every_error_comes_out_of_a_pickle_as_it_was(kind: type[errors.FoldawayError]) -> None:
    error = kind(*ARGUMENTS.get(kind, ("a sentence.",)))
    twin = pickle.loads(pickle.dumps(error))
    assert type(twin) is kind
    assert str(twin) == str(error)
    assert vars(twin) == vars(error)
