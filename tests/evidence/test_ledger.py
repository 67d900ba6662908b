"""The ledger of a trial: begun before the first record, kept with the state, merged with it, and small."""

from __future__ import annotations

from pathlib import Path

import pytest

from evidence_of import PLAN, ended, folded, records
from foldaway.effects.door import TOLD
from foldaway.evidence.ledger import ANSWERED, KEY_DESTROYED, KEY_IN_USE, MERGED, REGISTERED, WRITTEN, Ledger
from foldaway.evidence.signing import Signer
from foldaway.evidence.verifying import chain_faults
from foldaway.keeping.saved import load
from foldaway.trial import Trial

SIGNER = Signer(bytes(32))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who has no key yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    return tmp_path


def commitment_of(trial: Trial, effects: str) -> str:
    return trial.chronicle.commitment(effects, trial.tallies, trial.dropped, trial.secret)


def kinds(ledger: Ledger) -> list[str]:
    return [entry.kind for entry in ledger]


def test_it_begins_with_the_plan_and_goes_on_where_the_state_does(home: Path) -> None:
    file = home / "state"
    Trial(PLAN).save(file)  # registered before the first record
    head = load(file).ledger.head
    for start in range(0, 800, 100):
        trial, _ = Trial.opened(file)
        trial.fold(records(start, 100))
        trial.save(file)
    ledger = load(file).ledger
    # One entry each time the trial has doubled.
    assert [entry.content["records"] for entry in ledger if entry.kind == WRITTEN] == [100, 200, 400, 800]
    assert kinds(ledger)[:2] == [REGISTERED, KEY_IN_USE]
    assert ledger.lines[1].entry.hash == head
    assert list(chain_faults(ledger)) == []
    assert ledger.lines[0].entry.content["records"] == 0
    assert all(entry.time.endswith(":00:00Z") for entry in ledger if entry.kind == WRITTEN)


def test_records_that_were_there_before_it_began_are_in_its_first_entry(home: Path) -> None:
    trial = Trial.loads(folded().dumps())
    trial.save(home / "state")
    assert load(home / "state").ledger.lines[0].entry.content["records"] == 400


def test_a_state_that_cannot_be_written_is_not_in_it(home: Path) -> None:
    trial = folded()
    with pytest.raises(OSError, match="No such file"):
        trial.save(home / "no folder" / "state")
    assert kinds(trial.chronicle.ledger) == [REGISTERED]


def test_merged_trials_have_one_ledger_with_all_entries_of_both(home: Path) -> None:
    for name, start in (("one", 0), ("two", 400), ("three", 800)):
        folded(start).save(home / name)
    parts = [Trial.load(home / name) for name in ("one", "two", "three")]
    whole = parts[0] + parts[1] + parts[2]
    assert kinds(whole.chronicle.ledger).count(REGISTERED) == 3
    assert kinds(whole.chronicle.ledger).count(MERGED) == 2
    assert list(chain_faults(whole.chronicle.ledger)) == []
    ledger = whole.chronicle.ledger
    assert ledger.merge(parts[0].chronicle.ledger, SIGNER) is ledger  # nothing new in it
    ledger = ended(whole, home / "whole")
    assert kinds(ledger).count(KEY_DESTROYED) == 1  # they shared the user's key


def test_workers_leave_it_alone() -> None:
    trial = Trial(PLAN)
    head = trial.chronicle.register()
    assert (trial + folded()).chronicle.ledger.head == head


def test_effects_are_in_it_once_for_each_answer_that_is_new(home: Path) -> None:
    trial = folded()
    trial.save(home / "state")
    trial.told()
    trial.told()
    assert kinds(trial.chronicle.ledger).count(ANSWERED) == 1
    trial.fold(records(400, 400))
    trial.told()
    assert kinds(trial.chronicle.ledger).count(ANSWERED) == 2


def test_a_commitment_tells_the_tallies_apart_for_whoever_has_the_key_alone(home: Path) -> None:
    trial = folded()
    trial.save(home / "state")
    effects = trial.told().to_json()
    answered = trial.chronicle.ledger.last(ANSWERED)
    assert answered is not None
    assert answered.content["tallies"] == commitment_of(Trial.load(home / "state"), effects) != ""
    assert commitment_of(folded(n=800), effects) == ""  # other effects are read from those
    keyed = [Trial(PLAN, key=bytes([number] * 16)) for number in (1, 2)]
    for each in keyed:
        each.fold(records())
        each.fix()
    told = [each.read(TOLD).to_json() for each in keyed]
    assert commitment_of(keyed[0], told[0]) != commitment_of(keyed[1], told[1])
