"""The key of a trial with a bootstrap: what it opens, where it is not, and what is left when it is destroyed."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import stats

import foldaway as fa
from foldaway.errors import EndedError, RecordError, StateError
from foldaway.keeping.secret import Secret
from foldaway.numerics.kernels.siphash import hash_identifiers
from plans import SMALL, replaced
from resampling import KEY, OTHER_KEY, B, assert_same_replicates, folded, of_records, of_units, total_weights
from trials import make_trial

pytestmark = pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")


@pytest.fixture
def derived(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What is made of a key, and under which names."""
    made: list[bytes] = []
    derive = Secret._derived

    def watched(self: Secret, purpose: bytes, length: int) -> bytes:
        result = derive(self, purpose, length)
        if length >= 16:  # the mark is meant to be seen
            made.append(result)
            made.extend([purpose.removeprefix(b"shard")] if purpose.startswith(b"shard") else [])
        return result

    monkeypatch.setattr(Secret, "_derived", watched)
    return made


@pytest.mark.parametrize("records", [of_units, of_records])
def test_the_key_and_what_is_made_of_it_are_not_in_the_state(
    records: Callable[[], tuple[fa.Plan, pd.DataFrame]], derived: list[bytes], tmp_path: Path
) -> None:
    plan, rows = records()
    trial = folded(plan, rows[:500], rows[500:])
    trial.save(tmp_path / "state")
    assert derived
    for data in (trial.dumps(), (tmp_path / "state").read_bytes(), repr(trial).encode()):
        for hidden in (KEY, *derived):
            assert not any(form in data for form in (hidden, hidden[::-1], hidden[:8], hidden.hex().encode()))


def test_the_state_does_not_hold_the_units_names_or_numbers() -> None:
    plan, rows = of_units()
    data = folded(plan, rows).dumps()
    assert not any(unit.encode() in data for unit in rows["unit"])
    numbers = hash_identifiers(pa.array(rows["unit"]), Secret(KEY).of_units(plan.fingerprint))
    assert not any(number.tobytes() in data for number in numbers)


def test_an_ended_trial_has_no_key_and_takes_no_records() -> None:
    for plan, rows in (of_units(), of_records()):
        trial = folded(plan, rows)
        trial.fix()
        before, effects = trial.dumps(), trial.effects().to_json()
        held = trial.secret.found()
        assert held is not None
        buffer = held._key
        assert bytes(buffer) == KEY == trial.key
        trial.end(without_effects=True)
        assert trial.ended
        assert bytes(buffer) == bytes(16)
        with pytest.raises(EndedError):
            _ = trial.key
        ended = trial.dumps()
        for batch in (rows, rows[:0], rows.drop(columns="y0")):
            with pytest.raises(EndedError, match="has ended"):
                trial.fold(batch)
        assert trial.dumps() == ended
        assert trial.effects().to_json() == effects
        assert fa.Trial.loads(before).effects().to_json() == effects
        trial.end(without_effects=True)
        assert trial.dumps() == ended


def test_an_end_outlives_saving_and_merging() -> None:
    plan, rows = of_units()
    trial = folded(plan, rows[:500])
    trial.end(without_effects=True)
    rest = folded(plan, rows[500:])
    for ended in (fa.Trial.loads(trial.dumps()), fa.Trial.loads(trial.dumps(), key=KEY), trial + rest, rest + trial):
        assert ended.ended
        with pytest.raises(EndedError, match="has ended"):
            ended.fold(rows)
    assert not rest.ended
    assert_same_replicates(trial + rest, folded(plan, rows))


def test_a_trial_without_a_bootstrap_can_end_too() -> None:
    plan, rows = make_trial(14)
    trial = fa.Trial(plan)
    trial.fold(rows)
    trial.end(without_effects=True)
    with pytest.raises(EndedError, match="has ended"):
        trial.fold(rows)
    with pytest.raises(EndedError, match="has ended"):
        _ = trial.key


def test_a_trial_loaded_without_its_key_gives_effects_and_merges_but_folds_nothing() -> None:
    plan, rows = of_units()
    trial = folded(plan, rows[:500])
    trial.fix()
    back = fa.Trial.loads(trial.dumps())
    assert back.effects().to_json() == trial.effects().to_json()
    assert back.dumps() == trial.dumps()
    with pytest.raises(EndedError, match="without its key"):
        back.fold(rows[500:])
    with pytest.raises(EndedError, match="without its key"):
        _ = back.key
    assert back.dumps() == trial.dumps()
    assert_same_replicates(back + fa.Trial.loads(folded(plan, rows[500:]).dumps()), folded(plan, rows))


def test_a_trial_loaded_with_its_key_goes_on() -> None:
    plan, rows = of_units()
    back = fa.Trial.loads(folded(plan, rows[:500]).dumps(), key=KEY)
    assert back.key == KEY
    back.fold(rows[500:])
    assert_same_replicates(back, folded(plan, rows))


def test_another_key_is_refused() -> None:
    for plan, rows in (of_units(), of_records()):
        data = folded(plan, rows).dumps()
        with pytest.raises(StateError, match="another key") as refused:
            fa.Trial.loads(data, key=OTHER_KEY)
        assert OTHER_KEY.hex() not in str(refused.value)


def test_a_refused_batch_changes_nothing() -> None:
    for plan, rows in (of_units(), of_records()):
        trial = folded(plan, rows[:500])
        before = trial.dumps()
        bad = rows[500:].assign(y0=[np.nan, *rows["y0"][501:]])
        with pytest.raises(RecordError):
            trial.fold(bad)
        assert trial.dumps() == before
        if plan.unit is not None:
            trial.fold(rows[500:])
            assert_same_replicates(trial, folded(plan, rows))


def test_trials_of_units_merge_under_one_key_only() -> None:
    plan, rows = of_units()
    one, two = folded(plan, rows[:500]), folded(plan, rows[500:], key=OTHER_KEY)
    for a, b in ((one, two), (two, one), (fa.Trial.loads(one.dumps()), fa.Trial.loads(two.dumps()))):
        with pytest.raises(StateError, match="different keys"):
            a.merge(b)
    # A trial that has seen nobody yet has tied no identifier to a weight.
    for merged in (one + fa.Trial(plan), fa.Trial(plan) + one):
        assert_same_replicates(merged, one)
        merged.fold(rows[500:])
        assert_same_replicates(merged, folded(plan, rows))


def test_trials_of_records_merge_under_any_keys() -> None:
    plan, rows = of_records()
    merged = folded(plan, rows[:500]) + folded(plan, rows[500:], key=OTHER_KEY)
    assert merged.n == len(rows)
    assert np.var(total_weights(merged)) == pytest.approx(len(rows), rel=5 * np.sqrt(2 / B))


def test_another_plan_draws_other_weights_under_the_same_key() -> None:
    """Else the replicates of several analyses of one trial would be equations for the same unknowns."""
    plan, rows = of_units()
    one, other = (total_weights(folded(each, rows)) for each in (plan, replaced(plan, confidence=0.9)))
    assert abs(np.corrcoef(one, other)[0, 1]) < 5 / np.sqrt(B)


def test_where_nothing_is_hashed_a_key_is_for_saved_files_alone(tmp_path: Path) -> None:
    plan, rows = make_trial(15)
    trial, without = fa.Trial(plan, key=KEY), fa.Trial(plan)
    for each in (trial, without):
        each.fold(rows)
    assert trial.dumps() == without.dumps()
    trial.save(tmp_path / "state")
    assert fa.Trial.load(tmp_path / "state", key=KEY).dumps() == without.dumps()


@pytest.mark.parametrize("key", [b"", KEY[:8], KEY + KEY, "text" * 4])
def test_a_key_has_16_bytes(key: Any) -> None:
    plan, rows = of_units()
    with pytest.raises(fa.FoldawayError, match="16 bytes"):
        fa.Trial(plan, key=key)
    with pytest.raises(fa.FoldawayError, match="16 bytes"):
        fa.Trial.loads(folded(plan, rows).dumps(), key=key)


def test_every_design_has_a_key_of_its_own_and_keeps_it() -> None:
    plan, _ = of_units()
    designs = [msgspec.structs.replace(plan, name=f"design-{number}") for number in range(20)]
    keys = [fa.Trial(design).key for design in designs]
    assert len(set(keys)) == len(designs)
    assert [fa.Trial(msgspec.structs.replace(design, confidence=0.9)).key for design in designs] == keys


KEPT: dict[str, Any] = {
    "name": "kept",
    "arm": "g",
    "arms": {"a": 0.5, "b": 0.5},
    "outcomes": ["y"],
    "unit": "u",
}
RECORDS = {"g": ["a", "b"] * 60, "y": [float(i % 7) for i in range(120)], "u": list(range(120))}


def test_nothing_is_saved_under_a_key_that_nobody_will_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = fa.Plan(**KEPT)
    trial = fa.Trial(plan)
    trial.fold(RECORDS)
    trial.save(tmp_path / "one")
    other = fa.Trial(plan)
    other.fold(RECORDS)
    other.end(without_effects=True)  # of the same design, so the key of both
    before = (tmp_path / "one").read_bytes()
    with pytest.raises(fa.StateError, match="key for it is gone"):
        trial.save(tmp_path / "one")
    assert (tmp_path / "one").read_bytes() == before
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null/nowhere")
    homeless = fa.Trial(fa.Plan(**KEPT | {"name": "homeless"}))
    homeless.fold(RECORDS)
    with pytest.raises(fa.SourceError, match="no place for this user's key"):
        homeless.save(tmp_path / "two")


def test_ending_destroys_the_key_that_the_trial_was_saved_under_and_no_other(tmp_path: Path) -> None:
    plan = fa.Plan(**{name: value for name, value in KEPT.items() if name != "unit"})
    ours, theirs = fa.Trial(plan), fa.Trial(plan, key=bytes(16))
    for trial, name in ((ours, "ours"), (theirs, "theirs")):
        trial.fold(RECORDS)
        trial.save(tmp_path / name)
    theirs.end(without_effects=True)
    fa.Trial(plan).end(without_effects=True)
    assert fa.Trial.load(tmp_path / "ours").n == ours.n
    ours.end(without_effects=True)
    with pytest.raises(fa.StateError, match="encrypted under a key"):
        fa.Trial.load(tmp_path / "ours")


# Arms.


def test_arms_are_drawn_under_the_key_in_the_plans_proportions() -> None:
    """By HMAC-SHA-256, recomputed with the standard library."""
    plan = fa.Plan(**{**SMALL, "arms": {"a": 0.2, "b": 0.8}})
    trial = fa.Trial(plan, key=KEY)
    drawn = [trial.assign(unit) for unit in range(10_000)]
    assert stats.binomtest(drawn.count("a"), len(drawn), 0.2).pvalue > 1e-3
    assert drawn == [fa.Trial(plan, key=KEY).assign(str(unit)) for unit in range(10_000)]
    key = hashlib.blake2b(b"arm", key=KEY, digest_size=32, person=b"foldaway-key").digest()
    for unit, arm in enumerate(drawn[:100]):
        digest = hmac.digest(key, str(unit).encode(), "sha256")
        assert arm == ("a" if 5 * (int.from_bytes(digest[:7], "big") >> 4) < 2**52 else "b")
    for other in (plan.assign, fa.Trial(plan, key=bytes(16)).assign):
        pairs = list(zip(drawn, map(other, range(10_000)), strict=True))
        table = [[pairs.count((one, two)) for two in "ab"] for one in "ab"]
        assert stats.chi2_contingency(table, correction=False).pvalue > 1e-3


def test_a_user_s_own_key_draws_the_same_arms_in_every_process_until_the_trial_has_ended() -> None:
    plan = fa.Plan(**{**SMALL, "name": "drawn"})
    trial = fa.Trial(plan)
    drawn = [trial.assign(unit) for unit in range(100)]
    assert [fa.Trial(plan).assign(unit) for unit in range(100)] == drawn
    trial.end(without_effects=True)  # though no record came: arms were drawn under its key
    with pytest.raises(fa.EndedError, match="no further arm"):
        trial.assign(1)
    assert [fa.Trial(plan).assign(unit) for unit in range(100)] != drawn


def test_devices_draw_their_own_arms() -> None:
    with pytest.raises(fa.PlanError, match="draw their own arms"):
        fa.Trial(fa.Plan(**SMALL, federated="delta"), key=KEY).assign(1)
