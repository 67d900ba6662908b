"""What workers hand on: it merges like a tally, never raises, and shows nothing to whoever has no key."""

from __future__ import annotations

import msgspec
import pandas as pd
import pyarrow as pa
import pytest

import foldaway as fa
from foldaway.engines import partial
from foldaway.engines.partial import Partial, fold_partition, gathered, merged, opened, travel_key, trial_of
from foldaway.numerics.threads import cores, one_core
from memory_scan import Marks
from resampling import KEY, assert_same_replicates, folded, of_units
from trials import make_trial


def test_partitions_merge_to_the_one_pass_trial_in_any_grouping() -> None:
    plan, rows = of_units()
    parts = [fold_partition([rows[i::7]], plan, KEY) for i in range(7)]
    groups = (parts, [merged(parts[:3]), merged(parts[3:])], [merged([merged(parts[5:]), *parts[:5]])])
    for group in groups:
        trial = trial_of(group, plan, KEY)
        assert_same_replicates(trial, folded(plan, rows))
        assert trial.key == KEY


def test_no_partition_gives_an_empty_trial() -> None:
    plan, _ = make_trial(1)
    assert trial_of([], plan, None).n == 0
    assert trial_of([merged([]), fold_partition([], plan, None)], plan, None).n == 0


def test_faults_of_all_partitions_are_counted_in_one_message() -> None:
    plan, rows = make_trial(1, n=300)
    rows.loc[[7, 130, 131], "y0"] = None
    parts = [fold_partition([rows[:50], rows[50:100]], plan, None), fold_partition([rows[100:]], plan, None)]
    with pytest.raises(fa.RecordError, match=r"3 of 300 records are faulty\.\n  y0: 3 null"):
        trial_of(parts, plan, None)


def test_an_unforeseen_error_is_told_by_its_kind_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, rows = make_trial(1)
    secret = "Kilimanjaro-4711"

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError(secret)

    monkeypatch.setattr(fa.Trial, "fold", broken)
    part = fold_partition([rows], plan, None)
    assert secret not in repr(part)
    with pytest.raises(fa.RecordError, match="ZeroDivisionError") as caught:
        trial_of([part, Partial()], plan, None)
    assert caught.value.__context__ is None


def test_a_worker_folds_on_one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, rows = make_trial(1)
    seen = []
    monkeypatch.setattr(fa.Trial, "fold", lambda *_: seen.append(cores()))
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(8))
    fold_partition([rows], plan, None)
    assert (seen, cores()) == ([1], 8)
    with one_core():
        assert cores() == 1


def test_the_state_of_a_single_record_says_it_all_but_not_when_sealed() -> None:
    marks = Marks(1)
    plan = fa.Plan(name="one", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
    part = fold_partition([pd.DataFrame({"g": ["a"], "y": [marks.outcome(0)]})], plan, None)
    key = travel_key()
    assert marks.find(msgspec.msgpack.encode(part))
    assert not marks.find(part.sealed(key))
    assert Partial.within(part.sealed(key), key) == part


def test_a_parcel_opens_under_its_own_key_alone_and_undamaged() -> None:
    key, part = travel_key(), Partial(records=1)
    parcel = part.sealed(key)
    assert part.sealed(key) != parcel
    for other, bytes_ in ((travel_key(), parcel), (key, parcel[:-1] + bytes([parcel[-1] ^ 1]))):
        with pytest.raises(fa.StateError, match="damaged on their way"):
            opened(bytes_, other)


def test_small_batches_are_gathered_and_none_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial, "ROWS", 100)
    batches = [pa.record_batch({"i": pa.array(range(30 * k, 30 * k + 30))}) for k in range(11)]
    sizes = [table.num_rows for table in gathered(batches, whole=False)]
    assert sizes == [120, 120, 90]
    (whole,) = gathered(batches, whole=True)
    assert whole.column("i").to_pylist() == list(range(330))
    assert not list(gathered(batches[0:0], whole=False))


def test_columns_that_are_missing_or_doubled_are_named() -> None:
    plan, _ = make_trial(1)
    assert partial.plan_columns(plan, ["y0", "other", "group", "x0"]) == ["y0", "x0", "group"]
    with pytest.raises(fa.RecordError, match="nothing was folded: the data has no column 'x0', 'group'"):
        partial.plan_columns(plan, ["y0", "other"])
    with pytest.raises(fa.RecordError, match="more than one column 'x0'"):
        partial.plan_columns(plan, ["y0", "x0", "x0", "group"])
