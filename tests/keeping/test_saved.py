"""Saved files: a state with or without positions, encrypted, in one durable write."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldaway as fa
from foldaway.effects.door import TOLD
from foldaway.errors import TooEarly
from foldaway.keeping.folded_files import FilePositions, FoldedFile
from foldaway.keeping.saved import MAGIC, Positions, Saved, StreamPositions, load, loads, of_kind
from foldaway.keeping.secret import Secret
from foldaway.keeping.user_keys import FileKey, destroy_user_key, user_file_key, user_key
from plans import replaced

PLAN = fa.Plan(name="saved", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
KEY = bytes(range(16))


def state() -> bytes:
    trial = fa.Trial(PLAN)
    trial.fold({"group": ["a", "b", "a", "b"], "y": [1.0, 2.0, 2.0, 4.0]})
    return trial.dumps()


places = st.dictionaries(st.text(max_size=3), st.lists(st.integers(0, 2**63), max_size=3).map(tuple), max_size=3)
entries = st.builds(FoldedFile, st.binary(max_size=16), st.binary(max_size=16), st.booleans(), st.binary(max_size=16))
STREAM = StreamPositions("nats ORDERS", places={"": (17,)})


@settings(deadline=None, max_examples=50)
@given(
    st.builds(StreamPositions, st.text(max_size=9), st.text(max_size=9), places)
    | st.builds(FilePositions, st.binary(max_size=16), st.dictionaries(st.binary(max_size=16), entries, max_size=3))
)
def test_what_goes_in_comes_out_as_the_kind_it_was(positions: Positions) -> None:
    saved = Saved(state(), positions)
    assert loads(saved.dumps()) == saved
    assert type(loads(saved.dumps()).positions) is type(positions)


def test_positions_of_another_kind_of_source_are_told_apart() -> None:
    files = FilePositions(b"salt", {})
    assert of_kind(files, FilePositions) is files
    assert of_kind(STREAM, StreamPositions) is STREAM
    with pytest.raises(fa.StateError, match="saved by a run over files, not by the consumer of a stream"):
        of_kind(files, StreamPositions)
    with pytest.raises(fa.StateError, match="saved by the consumer of a stream, not by a run over files"):
        of_kind(STREAM, FilePositions)


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
        Saved(state(), positions).save(tmp_path / "state", user_file_key(PLAN.design, None))
        assert fa.Trial.load(tmp_path / "state", PLAN).dumps() == state()
        assert load(tmp_path / "state").positions == positions
    assert os.listdir(tmp_path) == ["state"]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(fa.StateError, match="cannot read the state"):
        load(tmp_path / "state")


# What is on the disk

KINDS: dict[str, dict[str, Any]] = {
    "sums": {},
    "by group": {"unit": "user"},
    "moments": {"moments": {"bootstrap": 20}, "unit": "user"},
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who has no key yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def folded(key: bytes | None = None, **settings: Any) -> fa.Trial:
    trial = fa.Trial(replaced(PLAN, name="checkout-page", arm="variant", outcomes=["revenue"], **settings), key=key)
    people = [f"person-{i}" for i in range(60)]
    revenue = [float(i % 7) for i in range(60)]
    trial.fold({"variant": ["a", "b"] * 30, "revenue": revenue, "user": people})
    return trial


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_file_is_for_its_owner_alone_and_tells_nothing_without_the_key(kind: str, tmp_path: Path) -> None:
    trial, file = folded(KEY, **KINDS[kind]), tmp_path / "state"
    umask = os.umask(0)
    try:
        trial.save(file)
    finally:
        os.umask(umask)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    plain, data = trial.dumps(), file.read_bytes()
    for part in (b"checkout-page", b"revenue", b"variant", b'"arms"'):
        assert part in plain
        assert part not in data
    # No eight bytes of the state, the size of a tally's number, are in the file.
    assert not {plain[i : i + 8] for i in range(len(plain) - 7)} & {data[i : i + 8] for i in range(len(data) - 7)}
    assert fa.Trial.load(file, key=KEY).dumps() == plain


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_opens_with_the_users_own_key_and_not_once_that_is_destroyed(
    kind: str, home: Path, tmp_path: Path
) -> None:
    trial, file = folded(**KINDS[kind]), tmp_path / "state"
    trial.save(file)
    (key_file,) = (home / "foldaway" / "keys").iterdir()
    assert fa.Trial.load(file).dumps() == trial.dumps()
    key = user_key(trial.plan.design, new=False)
    assert key is not None
    destroy_user_key(trial.plan.design, Secret(key).mark())
    with pytest.raises(fa.StateError, match=r"state: .*a key that this machine's user does not have.* --key "):
        fa.Trial.load(file)
    assert not key_file.exists()  # nobody made another one
    assert fa.Trial.load(file, key=key).dumps() == trial.dumps()


@pytest.mark.usefixtures("home")
def test_a_key_that_is_not_the_files_own_opens_nothing(tmp_path: Path) -> None:
    file = tmp_path / "state"
    folded(KEY).save(file)
    folded().save(tmp_path / "mine")  # so that the user has a key, too
    for key in (None, KEY[::-1]):
        with pytest.raises(fa.StateError, match="damaged, or is encrypted under another key"):
            fa.Trial.load(file, key=key)


def test_any_flipped_bit_or_cut_of_an_encrypted_file_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "state"
    Saved(b"state").save(file, FileKey(PLAN.design, KEY))
    data = file.read_bytes()
    for at in range(len(data)):
        for broken in (data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :], data[:at]):
            file.write_bytes(broken)
            with pytest.raises(fa.StateError):
                fa.Trial.load(file, key=KEY)


@pytest.mark.usefixtures("home")
def test_the_same_state_is_another_file_each_time(tmp_path: Path) -> None:
    """So nobody who sees a file twice knows whether anything has changed."""
    trial, files = folded(), [tmp_path / "one", tmp_path / "two"]
    for file in files:
        trial.save(file)
    one, two = (file.read_bytes() for file in files)
    assert one != two
    assert len(one) == len(two)


def test_without_a_place_for_the_users_key_a_state_is_not_saved_under_one_that_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").write_text("a file where a folder should be")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    trial = folded(confidence=0.8)
    with pytest.raises(fa.SourceError, match="no place for this user's key: set XDG_STATE_HOME"):
        trial.save(tmp_path / "state")
    assert not (tmp_path / "state").exists()
    folded(KEY, confidence=0.8).save(tmp_path / "state")


@pytest.mark.usefixtures("home")
def test_of_a_trial_that_has_ended_a_file_holds_rounded_effects_and_nothing_else(tmp_path: Path) -> None:
    trial, file = folded(smallest_cell=5, cohort=20, unit="user"), tmp_path / "state"
    rounded = trial.read(TOLD).to_json()
    trial.end(without_effects=True)
    trial.save(file, positions=STREAM)
    saved = load(file)
    assert (saved.state, saved.positions) == (b"", STREAM)
    assert saved.final is not None
    assert saved.final.effects == rounded
    assert rounded != trial.effects().to_json()
    assert fa.Plan.loads(saved.final.plan) == trial.plan
    with pytest.raises(fa.EndedError, match="the trial has ended and its tallies are destroyed"):
        fa.Trial.load(file)


def test_a_trial_too_small_for_effects_ends_without_any(tmp_path: Path) -> None:
    trial = folded(KEY)  # 60 people, and the cohort is 100
    trial.end(without_effects=True)
    trial.save(tmp_path / "state")
    saved = load(tmp_path / "state")
    assert saved.final is not None
    assert saved.final.effects is None
    with pytest.raises(TooEarly, match="ended without effects"):
        fa.Effects.load(tmp_path / "state")


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
    Saved(state(), STREAM).save(tmp_path / "state", FileKey(PLAN.design, KEY))
    assert steps == ["state.draft", "rename", tmp_path.name]
