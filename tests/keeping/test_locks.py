"""One holder at a time, however the last one went."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from foldaway.errors import StateError
from foldaway.keeping.locks import locked


def test_whoever_does_not_wait_is_told_and_leaves_the_lock_alone(tmp_path: Path) -> None:
    path = tmp_path / "state"
    taken = StateError("taken.")
    with locked(path):
        for _ in range(2):
            with pytest.raises(StateError, match="taken") as caught, locked(path, taken):
                pass
            assert caught.value is taken
    with locked(path, taken):
        pass
    assert list(tmp_path.iterdir()) == []


def test_whoever_waits_comes_next_one_at_a_time(tmp_path: Path) -> None:
    path, inside, most = tmp_path / "state", [0], [0]

    def hold() -> None:
        for _ in range(50):
            with locked(path):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1

    threads = [threading.Thread(target=hold) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (inside, most) == ([0], [1])
    assert list(tmp_path.iterdir()) == []
