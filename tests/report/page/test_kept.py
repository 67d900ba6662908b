"""What was kept: the sizes add up to the state, and the numbers to the tallies."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given

import foldaway as fa
from foldaway.keeping.saved import Saved, load
from foldaway.keeping.state import Array
from foldaway.report.page.kept import inventory
from foldaway.sources.formats.files import ReadOptions
from foldaway.sources.runs.backlog import Backlog
from foldaway.tallies import Lean, arms_of
from foldaway.tallies.grouped import GroupedState
from foldaway.tallies.moments import Arms, ArmTally, Tally
from foldaway.tallies.moments.arm import ArmState
from foldaway.trial.state import TrialState
from fuzzing import fuzz
from measured import measured
from pages import parsed, tables
from plans import plans
from reported import CASES, case
from sizes import mostly_slow

EVERY = pytest.mark.parametrize("name", CASES)


def saved_arms(trial: fa.Trial) -> Sequence[ArmTally]:
    """The tallies by arm that are in a state: beside sums, none before the first record."""
    return arms_of(trial.tallies) if trial.n or isinstance(trial.tallies, Arms) else ()


def floats(trial: fa.Trial) -> int:
    tallies = trial.tallies
    arms = sum(arm.frame.F.size + sum(map(arrays, (arm.factor, *arm.tallies.values()))) for arm in saved_arms(trial))
    if not isinstance(tallies, Lean) or not trial.n:
        return arms
    sums = arms + sum(array.size for array in tallies.sums.arrays().values())
    found = tallies.predictor is not None and trial.plan.coefficients is None
    return sums + (sum(array.size for array in tallies.predictor[:2]) if found and tallies.predictor else 0)


def arrays(tally: Tally) -> int:
    return sum(len(part.data) // 8 for part in msgspec.structs.astuple(tally.state()) if isinstance(part, Array))


def counts(trial: fa.Trial) -> int:
    """The whole numbers: of the frame and the factor of each arm, of its tallies, and of faults."""
    by_tally = {"records": 2, "units": 2, "replicates": 1}  # records and clusters; records and clusters; records
    per_arm = 2 + sum(by_tally[name] for name in arms_of(trial.tallies)[0].tallies) if arms_of(trial.tallies) else 0
    return per_arm * len(saved_arms(trial)) + len(trial.dropped.records) + len(list(trial.dropped))


@EVERY
def test_sizes_add_up_to_the_state_and_numbers_to_the_tallies(name: str) -> None:
    trial = case(name)
    trial.fix()
    state = trial.dumps()
    found = inventory(Saved(state))
    assert sum(kept.size for kept in found) == len(state)
    assert sum(kept.numbers for kept in found) == floats(trial) + counts(trial)
    assert len({kept.name for kept in found}) == len(found)
    for kept in found:
        assert kept.size > 0
        assert kept.what
    # Nothing hides in what holds the parts together: names, some in the tallies, and two bytes or so around each part.
    names = sum(len(word) for word in TrialState.__struct_fields__)
    arms = saved_arms(trial)
    names += len(arms) * sum(len(word) for word in ArmState.__struct_fields__)
    if not isinstance(trial.tallies, Arms):
        names += sum(len(word) for word in GroupedState.__struct_fields__)
    tallies = sum(len(tally) + 2 for arm in arms for tally in arm.tallies)
    around = 2 * (len(TrialState.__struct_fields__) + len(GroupedState.__struct_fields__))
    assert names < found[-1].size <= names + tallies + around + 8 * len(arms)


@fuzz(max_examples=30)
@given(plans())
def test_every_plan_has_an_inventory(plan: fa.Plan) -> None:
    trial = fa.Trial(plan)
    found = inventory(Saved(trial.dumps()))
    assert sum(kept.size for kept in found) == len(trial.dumps())
    assert sum(kept.numbers for kept in found) == floats(trial) + counts(trial)


@pytest.mark.parametrize("name", mostly_slow(CASES, "empty", "resampled", "faulty"))
def test_the_page_shows_it_and_its_sum(name: str) -> None:
    trial = case(name)
    section = parsed(trial.report().html).one("section", id="kept")
    [table] = tables(section)
    *rows, total = [
        [row[0], *(0 if cell == "–" else int(cell.replace(",", "")) for cell in row[2:])] for row in table.rows
    ]
    found = inventory(Saved(trial.dumps()))
    assert rows == [[kept.name, kept.numbers, kept.size] for kept in found]
    assert total == ["In all", sum(kept.numbers for kept in found), len(trial.dumps())]
    assert "No record was kept." in section.text
    assert (f"{trial.n:,} records were folded" if trial.n else "No record has arrived yet") in section.text


def test_it_does_not_grow_with_records() -> None:
    small, large = (inventory(Saved(case(name).dumps())) for name in ("small", "large"))
    assert [kept.numbers for kept in small] == [kept.numbers for kept in large]
    # Only the counts may take a byte or two more.
    assert np.allclose([kept.size for kept in small], [kept.size for kept in large], atol=10)


def test_a_damaged_state_has_no_inventory() -> None:
    with pytest.raises(fa.StateError, match="damaged"):
        inventory(Saved(case("small").dumps()[:-1]))


def test_what_is_saved_with_the_state_is_on_the_page(tmp_path: Path) -> None:
    """The sum of everything that exists is the size of what the file holds, encrypted."""
    (tmp_path / "day.csv").write_text("group,y\n" + "a,1\nb,2\n" * 60)
    plan = fa.Plan(name="t", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
    state = tmp_path / "state"
    with Backlog(plan, state) as backlog:
        backlog.fold(backlog.find([str(tmp_path / "day.csv")]), ReadOptions())
    subprocess.run(
        [sys.executable, "-m", "foldaway", "report", str(state)], check=True, env={**os.environ, **measured()}
    )
    section = parsed((tmp_path / "state.html").read_text("utf-8")).one("section", id="kept")
    [table] = tables(section)
    sizes = {row[0]: int(row[-1].replace(",", "")) for row in table.rows}
    assert sizes.pop("In all") == sum(sizes.values()) == len(load(state).dumps())
    assert sizes["List of files"] > len(msgspec.msgpack.encode(load(state).positions))
