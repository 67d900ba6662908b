"""Saved files: a state with or without positions, in one durable write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldaway as fa
from foldaway.keeping.ledger import Entry, Pages
from foldaway.keeping.saved import MAGIC, Positions, Saved, StreamPositions, load, loads, of_kind

PLAN = fa.Plan(name="saved", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])


def state() -> bytes:
    trial = fa.Trial(PLAN)
    trial.fold({"group": ["a", "b", "a", "b"], "y": [1.0, 2.0, 2.0, 4.0]})
    return trial.dumps()


places = st.dictionaries(st.text(max_size=3), st.lists(st.integers(0, 2**63), max_size=3).map(tuple), max_size=3)
entries = st.builds(Entry, st.binary(max_size=16), st.binary(max_size=16), st.booleans(), st.binary(max_size=16))
STREAM = StreamPositions("nats ORDERS", places={"": (17,)})


@settings(deadline=None, max_examples=50)
@given(
    st.builds(StreamPositions, st.text(max_size=9), st.text(max_size=9), places, closed=st.booleans())
    | st.builds(Pages, st.binary(max_size=16), st.dictionaries(st.binary(max_size=16), entries, max_size=3))
)
def test_what_goes_in_comes_out_as_the_kind_it_was(positions: Positions) -> None:
    saved = Saved(state(), positions)
    assert loads(saved.dumps()) == saved
    assert type(loads(saved.dumps()).positions) is type(positions)


def test_positions_of_another_kind_of_source_are_told_apart() -> None:
    pages = Pages(b"salt", {})
    assert of_kind(pages, Pages) is pages
    assert of_kind(STREAM, StreamPositions) is STREAM
    with pytest.raises(fa.StateError, match="saved by a run over files, not by the consumer of a stream"):
        of_kind(pages, StreamPositions)
    with pytest.raises(fa.StateError, match="saved by the consumer of a stream, not by a run over files"):
        of_kind(STREAM, Pages)


def test_without_positions_it_is_the_state_itself() -> None:
    assert Saved(state()).dumps() == state()
    assert not state().startswith(MAGIC)


def test_any_flipped_bit_or_cut_is_noticed() -> None:
    data = Saved(state(), STREAM).dumps()
    for at in range(len(data)):
        with pytest.raises(fa.StateError):
            fa.Trial.loads(loads(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]).state)
        with pytest.raises(fa.StateError):
            fa.Trial.loads(loads(data[:at]).state)


def test_a_trial_is_loaded_from_either(tmp_path: Path) -> None:
    for positions in (None, STREAM):
        Saved(state(), positions).save(tmp_path / "state")
        assert fa.Trial.load(tmp_path / "state", PLAN).dumps() == state()
        assert load(tmp_path / "state").positions == positions
    assert os.listdir(tmp_path) == ["state"]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(fa.StateError, match="cannot read the state"):
        load(tmp_path / "state")


def test_the_disk_has_the_file_and_its_name_before_save_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this order: the bytes, the new name, the folder that holds it."""
    steps: list[str] = []
    flush, rename = os.fsync, Path.replace

    def fsync(handle: int) -> None:
        steps.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)
        flush(handle)

    def replace(path: Path, target: Path) -> Path:
        steps.append("rename")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    Saved(state(), STREAM).save(tmp_path / "state")
    assert steps == ["state.draft", "rename", tmp_path.name]
