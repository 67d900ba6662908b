"""Errors travel, from a worker process, a cluster's executor, a service; and what they replace stays behind."""

from __future__ import annotations

import gc
import pickle
import traceback
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from foldaway import errors
from foldaway.records.faults import Fault, Faults, FaultyBatch

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.FoldawayError)]
ARGUMENTS: dict[type, tuple[Any, ...]] = {
    errors.Unreleased: (),
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


class Record:
    """Something that a frame can hold, and of which one can see whether it is gone."""


def stumble(gone: list[weakref.ref[Record]]) -> None:
    record = Record()
    gone.append(weakref.ref(record))
    raise ValueError("SECRET")


@pytest.mark.parametrize("ours", [errors.RecordError("refused."), lambda error: errors.RecordError("refused.")])
def test_nothing_of_the_error_that_ours_replaces_hangs_on_it(ours: Any) -> None:
    gone: list[weakref.ref[Record]] = []

    def fold() -> None:
        with errors.instead_of(ValueError, ours):
            stumble(gone)

    with pytest.raises(errors.RecordError) as caught:
        fold()
    raised = caught.value
    assert raised.__context__ is None
    assert raised.__cause__ is None
    within = [repr(frame.f_locals) for frame, _ in traceback.walk_tb(raised.__traceback__)]
    assert len(within) == 3
    assert not any("SECRET" in values for values in within)
    assert [record() for record in gone] == [None]  # its frame is gone, without a search for garbage


def test_other_errors_pass_and_so_does_one_for_which_there_is_no_other() -> None:
    first = ValueError("SECRET")
    for kinds, ours in ((TypeError, errors.RecordError("refused.")), (ValueError, lambda error: None)):
        with pytest.raises(ValueError, match="SECRET") as caught, errors.instead_of(kinds, ours):
            raise first
        assert caught.value is first


def test_within_the_handling_of_another_error_nothing_hangs_on_ours_either() -> None:
    def mend() -> None:
        try:
            raise KeyError("SECRET")
        except KeyError:
            with errors.instead_of(ValueError, errors.RecordError("refused.")):
                raise ValueError("SECRET") from None

    with pytest.raises(errors.RecordError) as caught:
        mend()
    assert caught.value.__context__ is None


def test_nothing_that_the_calling_function_holds_outlives_the_error() -> None:
    def refuse(ours: Callable[[], Any]) -> weakref.ref[Record]:
        record = Record()
        watched = weakref.ref(record)
        try:
            with errors.instead_of(ValueError, ours()):
                raise ValueError(record)
        except errors.RecordError:
            pass
        return watched

    gc.disable()  # reference counts alone must do
    try:
        made: list[Callable[[], Any]] = [
            lambda: errors.RecordError("refused."),
            lambda: lambda error: errors.RecordError("refused."),
        ]
        assert [refuse(ours)() for ours in made] == [None, None]
    finally:
        gc.enable()
