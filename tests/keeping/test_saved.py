"""Saved files: a state with or without positions, in one durable write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldaway as fa
from foldaway.keeping.saved import MAGIC, Saved, load, loads

PLAN = fa.Plan(name="saved", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])


def state() -> bytes:
    trial = fa.Trial(PLAN)
    trial.fold({"group": ["a", "b", "a", "b"], "y": [1.0, 2.0, 2.0, 4.0]})
    return trial.dumps()


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=200))
def test_what_goes_in_comes_out(positions: bytes) -> None:
    saved = Saved(state(), positions)
    assert loads(saved.dumps()) == saved


def test_without_positions_it_is_the_state_itself() -> None:
    assert Saved(state()).dumps() == state()
    assert not state().startswith(MAGIC)


def test_any_flipped_bit_or_cut_is_noticed() -> None:
    data = Saved(state(), b"day 17").dumps()
    for at in range(len(data)):
        with pytest.raises(fa.StateError):
            fa.Trial.loads(loads(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]).state)
        with pytest.raises(fa.StateError):
            fa.Trial.loads(loads(data[:at]).state)


def test_a_trial_is_loaded_from_either(tmp_path: Path) -> None:
    for positions in (b"", b"day 17"):
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
    Saved(state(), b"day 17").save(tmp_path / "state")
    assert steps == ["state.draft", "rename", tmp_path.name]
