"""How many cores a process takes."""

from __future__ import annotations

import os

import pytest

from foldaway.numerics.threads import CORES, cores


@pytest.mark.parametrize(("told", "taken"), [("1", 1), ("7", 7), ("0", 1)])
def test_a_process_that_is_told_its_share_keeps_to_it(monkeypatch: pytest.MonkeyPatch, told: str, taken: int) -> None:
    monkeypatch.setenv(CORES, told)
    assert cores() == taken


@pytest.mark.parametrize("told", ["", "many", "-3"])
def test_what_is_no_number_counts_as_nothing(monkeypatch: pytest.MonkeyPatch, told: str) -> None:
    monkeypatch.setenv(CORES, told)
    assert 1 <= cores() <= (os.cpu_count() or 1)
