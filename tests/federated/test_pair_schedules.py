"""Random schedules of crashes, losses, repeats and delays over devices and both servers of mode shares."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from foldaway.federated.summands.summands import HeldBatch, Summands
from pair_schedules import PairSchedule, PairTale
from postgres import quick_folder

pytestmark = pytest.mark.once


def run(seeds: range) -> PairTale:
    tale = PairTale()
    for seed in seeds:
        with tempfile.TemporaryDirectory(dir=quick_folder()) as folder:
            tale += PairSchedule(Path(folder), seed).run()
    return tale


@pytest.mark.parametrize("seeds", [range(5), pytest.param(range(100, 200), marks=pytest.mark.slow)])
def test_both_servers_add_up_the_same_reports_each_once(seeds: range) -> None:
    tale = run(seeds)
    assert not tale.wrong, tale.wrong
    assert tale.counted > 6 * len(seeds)
    assert tale.published > 1
    assert len(tale.events) > 8


def test_a_helper_that_takes_any_batch_for_the_leaders_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Teeth: without the digest, a batch stays that the leader has not added up, because it crashed or was refused."""
    follow = Summands.follow

    def careless(self: Summands, batch: int, after: bytes) -> HeldBatch | None:
        return follow(self, batch, self.candidates[0].digest if batch == self.batch + 2 and self.candidates else after)

    monkeypatch.setattr(Summands, "follow", careless)
    assert any(run(range(seed, seed + 1)).wrong for seed in range(20))
