"""A stream's state on disk: all of it or nothing, and of its own plan."""

from __future__ import annotations

from pathlib import Path

import pytest

import foldaway as fa
from foldaway.engines.stream_store import Stored, StreamStore
from resampling import KEY, folded, of_units
from trials import make_trial


def test_what_was_written_comes_back(tmp_path: Path) -> None:
    plan, rows = of_units()
    store = StreamStore(tmp_path / "new" / "store")
    assert store.read(plan) is None
    for batch in (3, 4):
        store.write(Stored("query", batch, folded(plan, rows[: 100 * batch])))
        found = store.read(plan, key=KEY)
        assert found is not None
        assert (found.query, found.batch, found.trial.n) == ("query", batch, 100 * batch)
        assert found.trial.key == KEY
    assert [path.name for path in store.folder.iterdir()] == ["state"]
    assert KEY not in (store.folder / "state").read_bytes()


def test_a_crash_while_writing_leaves_the_old_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, rows = make_trial(1)
    store, trial = StreamStore(tmp_path), fa.Trial(plan)
    store.write(Stored("query", 1, trial))
    trial.fold(rows)

    def fails(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", fails)
        with pytest.raises(fa.StateError, match="No space left") as caught:
            store.write(Stored("query", 2, trial))
    assert caught.value.__context__ is None
    found = store.read(plan)
    assert found is not None
    assert (found.batch, found.trial.n) == (1, 0)


def test_a_damaged_or_foreign_state_is_refused(tmp_path: Path) -> None:
    plan, rows = make_trial(1)
    trial = fa.Trial(plan)
    trial.fold(rows)
    store, path = StreamStore(tmp_path), tmp_path / "state"
    store.write(Stored("query", 1, trial))
    with pytest.raises(fa.StateError, match=r"state: the state was made under another plan"):
        store.read(make_trial(2)[0])
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(fa.StateError, match="damaged or truncated"):
        store.read(plan)
    path.unlink()
    path.mkdir()
    with pytest.raises(fa.StateError, match="cannot read"):
        store.read(plan)
