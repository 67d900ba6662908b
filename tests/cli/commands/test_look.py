"""`foldaway look`: real processes, a real file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import foldaway as fa
from commands import foldaway
from plans import LOOKED


def saved(path: Path, n: int) -> fa.Trial:
    trial = fa.Trial(fa.Plan(**{**LOOKED, "name": "looked-at"}))
    arms = np.array(["a", "b"])[np.arange(n) % 2]
    trial.fold({"group": arms, "y": np.random.default_rng(2).normal(size=n) + 0.5 * (arms == "b")})
    trial.save(path)
    return trial


def test_a_look_is_taken_once_and_remembered(tmp_path: Path) -> None:
    state = tmp_path / "state"
    trial = saved(state, 500)
    assert "no planned look has been taken yet" in " ".join(foldaway("effects", state).stdout.lower().split())
    first = foldaway("look", state)
    assert "stop for benefit" in first.stdout
    assert fa.Trial.load(state).looks == (trial.look(),)
    before = state.read_bytes()
    again = foldaway("look", state)
    assert again.stdout == first.stdout == foldaway("effects", state).stdout
    assert "No further look is due" in again.stderr
    assert state.read_bytes() == before
    assert json.loads(foldaway("look", state, "--json").stdout)["looks"][0]["arms"][0]["found"] == "stop for benefit"


def test_a_look_that_is_too_early_changes_nothing(tmp_path: Path) -> None:
    state = tmp_path / "state"
    saved(state, 300)
    before = state.read_bytes()
    assert "the first look is due at 50 %" in foldaway("look", state, code=1).stderr
    assert state.read_bytes() == before
    assert "(the last)" in foldaway("look", state, "--last").stdout


def test_a_trial_that_has_ended_is_looked_at_no_more(tmp_path: Path) -> None:
    state = tmp_path / "state"
    saved(state, 500)
    foldaway("look", state)
    foldaway("end", state, "--yes")
    assert "has ended" in foldaway("look", state, code=1).stderr
    assert fa.Effects.load(state).looks[0].arms[0].found == "stop for benefit"
