"""A backlog of files: every file counted once whatever is killed, and deleted only when its records are safe."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

import foldaway as fa
from foldaway.evidence.ledger import REGISTERED
from foldaway.evidence.verifying import chain_faults
from foldaway.keeping.locks import locked
from foldaway.keeping.saved import StreamPositions, load
from foldaway.sources.formats.files import ReadOptions
from foldaway.sources.runs.backlog import Backlog, RunOutcome, files_of
from foldaway.sources.runs.folding import fold_files
from foldaway.sources.runs.shares import shares_of
from foldaway.tallies import Grouped
from measured import measured

FILES = 30
PLAN = fa.Plan(
    name="backlog", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["low", "high"], privacy=fa.Privacy(cohort=40)
)

pytestmark = [pytest.mark.once, pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")]


def write(folder: Path, number: int, records: int = 20) -> Path:
    """A file whose first record of each arm carries 4 to the power of its number, so that sums count files."""
    column, power = divmod(number, 16)
    lines = ["group,low,high"]
    for record in range(records):
        value = 4**power if record < 2 else 0
        lines.append(f"{'ab'[record % 2]},{value if column == 0 else 0},{value if column == 1 else 0}")
    path = folder / f"{number:03d} ü [x].csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def counted(state: Path, plan: fa.Plan = PLAN) -> list[int]:
    """How often each file is in the state."""
    trial = fa.Trial.load(state, plan)
    times = []
    for outcome in plan.measured:
        row = trial.effects().filter(outcome=outcome, estimator="difference", se_kind="welch")[0]
        total = round(row.control_level * trial.counts["a"])
        times += [total // 4**power % 4 for power in range(16)]
    return times


def fold(folder: Path, state: Path, *, resume: bool = True, delete: bool = False, processes: int = 1) -> RunOutcome:
    with Backlog(PLAN, state, resume=state if resume else None, delete_after=delete) as backlog:
        return backlog.fold(backlog.find([str(folder / "*.csv")]), ReadOptions(), processes=processes)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "inbox"
    folder.mkdir()
    for number in range(4):
        write(folder, number)
    return folder


@pytest.mark.parametrize(("processes", "rounds"), [(1, 4), pytest.param(2, 8, marks=pytest.mark.slow)])
def test_killed_at_any_moment_every_file_counts_once(tmp_path: Path, processes: int, rounds: int) -> None:
    """Kills fall anywhere between the first import and the last delete; what is gone from disk is in the state."""
    folder, state = tmp_path / "inbox", tmp_path / "state"
    folder.mkdir()
    for number in range(FILES):
        write(folder, number, 1000)
    PLAN.save(tmp_path / "plan.toml")
    words = [sys.executable, "-m", "foldaway", "run", str(tmp_path / "plan.toml"), str(folder / "*.csv")]
    words += ["--save", str(state), "--resume", str(state), "--delete-after", "--processes", str(processes), "--json"]
    rng = random.Random(processes)
    for number in range(rounds):
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if number % 2:
            time.sleep(rng.uniform(0, 1.5))
        else:
            wait_for_a_change(process, folder, state)
            time.sleep(rng.expovariate(1000))
        process.kill()
        process.wait()
        check_nothing_is_lost(folder, state)
    done = subprocess.run(words, capture_output=True, env={**os.environ, **measured()}, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    assert counted(state)[:FILES] == [1] * FILES
    assert list(folder.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inbox", "plan.toml", "state"]
    ledger = load(state).ledger
    assert list(chain_faults(ledger)) == []
    assert [entry.kind for entry in ledger].count(REGISTERED) == 1


def wait_for_a_change(process: subprocess.Popen[bytes], folder: Path, state: Path) -> None:
    """Until the run has changed something on the disk, or has ended."""

    def now() -> tuple[int, int]:
        return len(list(folder.iterdir())), state.stat().st_mtime_ns if state.exists() else 0

    before = now()
    deadline = time.monotonic() + 60
    while process.poll() is None and now() == before and time.monotonic() < deadline:
        time.sleep(0.0005)


def check_nothing_is_lost(folder: Path, state: Path) -> None:
    """A file that is gone is in the state; no file is in it twice."""
    there = {int(path.name[:3]) for path in folder.iterdir()}
    times = counted(state)[:FILES] if state.exists() else [0] * FILES
    assert all(times[number] == 1 for number in range(FILES) if number not in there)
    assert max(times) <= 1


class PowerCut(BaseException):
    """What no handler is written for."""


def test_the_coefficients_of_a_run_come_from_all_of_its_records(tmp_path: Path) -> None:
    """Of the first file alone, with 40 records and 20 columns, there could be none."""
    columns = [f"x{i}" for i in range(20)]
    plan = fa.Plan(**{**msgspec.structs.asdict(PLAN), "outcomes": ["low"], "covariates": columns})
    chance = random.Random(1)
    for number in range(5):
        rows = [["ab"[i % 2], *(f"{chance.gauss(0, 1):.17f}" for _ in range(21))] for i in range(40)]
        lines = [",".join(row) for row in (["group", "low", *columns], *rows)]
        (tmp_path / f"{number}.csv").write_text("\n".join(lines) + "\n")
    with Backlog(plan, tmp_path / "state") as backlog:
        found = backlog.find([str(tmp_path / "*.csv")])
        assert len(shares_of([path for path in found if isinstance(path, Path)], plan)) > 1
        backlog.fold(found, ReadOptions())
    whole = fold_files(str(tmp_path / "*.csv"), plan)
    whole.fix()
    ours, theirs = (trial.tallies for trial in (fa.Trial.load(tmp_path / "state"), whole))
    assert isinstance(ours, Grouped)
    assert isinstance(theirs, Grouped)
    assert ours.predictor is not None
    assert theirs.predictor is not None
    assert ours.predictor.digest == theirs.predictor.digest


def cut_off_before_deleting(folder: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is killed when it is about to delete its files."""
    really = Path.unlink

    def cut(path: Path, missing_ok: bool = False) -> None:
        if path.suffix == ".csv":
            raise PowerCut
        really(path, missing_ok)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", cut)
        with pytest.raises(PowerCut):
            fold(folder, state, delete=True)


def test_a_crash_between_save_and_delete(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "state"
    cut_off_before_deleting(folder, state, monkeypatch)
    assert len(list(folder.iterdir())) == 4
    assert counted(state)[:4] == [1, 1, 1, 1]
    outcome = fold(folder, state, delete=True)
    assert (len(outcome.known), len(outcome.deleted), outcome.folded) == (4, 4, [])
    assert list(folder.iterdir()) == []
    assert counted(state)[:4] == [1, 1, 1, 1]


def test_a_crash_before_the_save_deletes_nothing(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(*_: object) -> None:
        raise PowerCut

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", cut)
        with pytest.raises(PowerCut):
            fold(folder, tmp_path / "state", delete=True)
    assert len(list(folder.iterdir())) == 4
    fold(folder, tmp_path / "state", delete=True)
    assert counted(tmp_path / "state")[:4] == [1, 1, 1, 1]


def test_files_in_the_state_are_skipped_and_new_ones_are_folded(folder: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    first = fold(folder, state)
    assert (len(first.folded), first.known, first.deleted) == (4, [], [])
    for number in (4, 5):
        write(folder, number)
    second = fold(folder, state)
    assert (len(second.folded), len(second.known)) == (2, 4)
    assert counted(state)[:7] == [1, 1, 1, 1, 1, 1, 0]
    before = state.read_bytes()
    third = fold(folder, state)
    assert (third.folded, len(third.known)) == ([], 6)
    assert state.read_bytes() == before
    relative = os.path.relpath(folder)  # the same files, named from elsewhere
    with Backlog(PLAN, state, resume=state) as backlog:
        assert backlog.find([f"{relative}/*.csv"]) == []


def test_a_changed_file_is_refused(folder: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    fold(folder, state)
    before = state.read_bytes()
    write(folder, 9)
    path = next(iter(sorted(folder.iterdir())))
    path.write_text(path.read_text() + "a,1,1\n")
    with pytest.raises(fa.SourceError, match="has changed since"):
        fold(folder, state)
    assert state.read_bytes() == before


def test_a_file_that_changes_while_it_is_read_is_not_in_the_state(folder: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    victim = sorted(folder.iterdir())[2]

    def meddle(path: object, _: int) -> None:
        if path == victim:
            os.utime(victim, ns=(1, 1))

    with Backlog(PLAN, state, delete_after=True) as backlog:
        paths = backlog.find([str(folder / "*.csv")])
        with pytest.raises(fa.SourceError, match="changed while it was read"):
            backlog.fold(paths, ReadOptions(), progress=meddle)
    assert len(list(folder.iterdir())) == 4
    assert not state.exists()


def test_a_renamed_file_is_noticed(folder: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    fold(folder, state)
    path = next(folder.iterdir())
    path.rename(folder / "renamed.csv")
    with pytest.raises(fa.SourceError, match=r"renamed\.csv was folded before under another name"):
        fold(folder, state)


def test_a_deleted_file_makes_room_for_another_of_its_name(folder: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    fold(folder, state, delete=True)
    (folder / "000 ü [x].csv").write_text(write(tmp_path, 7, 60).read_text())
    outcome = fold(folder, state, delete=True)
    assert len(outcome.folded) == 1
    assert counted(state)[:8] == [1, 1, 1, 1, 0, 0, 0, 1]


def cut_off_after_deleting(folder: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is killed after it has deleted its files and before it has taken note of that."""
    with monkeypatch.context() as patched:
        patched.setattr(Backlog, "__exit__", lambda self, *_: self._held.close())
        fold(folder, state, delete=True)


def test_a_name_is_free_again_though_the_run_that_deleted_the_file_was_killed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    fold(folder, state)  # which deletes nothing
    write(folder, 4, 40)
    cut_off_after_deleting(folder, state, monkeypatch)
    assert list(folder.iterdir()) == []
    fold(folder, state, delete=True)  # the same command again
    for number in (0, 4):
        (folder / f"{number:03d} ü [x].csv").write_text(write(tmp_path, 7 + number, 60).read_text())
    assert len(fold(folder, state, delete=True).folded) == 2
    assert counted(state)[:12] == [1, 1, 1, 1, 1, 0, 0, 1, 0, 0, 0, 1]


def test_what_was_not_to_be_deleted_or_has_only_moved_is_not_taken_for_deleted(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, elsewhere = tmp_path / "state", tmp_path / "elsewhere"
    elsewhere.mkdir()
    kept, moved = sorted(folder.iterdir())[:2]
    fold(folder, state)
    kept.rename(elsewhere / "kept")
    write(folder, 4, 40)
    cut_off_before_deleting(folder, state, monkeypatch)
    there = moved.rename(folder / "another name.csv")
    with pytest.raises(fa.SourceError, match="was folded before under another name"):
        fold(folder, state, delete=True)
    with pytest.raises(fa.SourceError, match="was folded before under another name"):  # also when that is noted
        fold(folder, state, delete=True)
    there.unlink()
    write(folder, 0, 60)
    with pytest.raises(fa.SourceError, match="has changed since"):
        fold(folder, state, delete=True)


def test_states_that_are_saved_differ_by_a_cohort(folder: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    for path in folder.iterdir():
        path.unlink()
    write(folder, 0, 20)
    with pytest.raises(fa.StateError, match="records of 20 units, and a saved state needs the plan's cohort of 40"):
        fold(folder, state, delete=True)
    assert not state.exists()
    write(folder, 1, 20)
    assert fold(folder, state, delete=True).trial.n == 40
    write(folder, 2, 20)
    waiting = fold(folder, state, delete=True)
    assert (len(waiting.waiting), waiting.waiting_records, waiting.trial.n) == (1, 20, 40)
    assert len(list(folder.iterdir())) == 1
    write(folder, 3, 20)
    assert fold(folder, state, delete=True).trial.n == 80
    assert counted(state)[:4] == [1, 1, 1, 1]


def test_a_saved_file_reads_as_a_state_and_names_no_file(folder: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    trial = fold(folder, state).trial
    assert fa.Trial.load(state, PLAN).dumps() == trial.dumps()
    data = state.read_bytes()
    for path in folder.iterdir():
        assert os.fsencode(path.name) not in data
    assert os.fsencode(folder.name) not in data
    assert len(files_of(load(state).positions)) == 4
    for damage in (data[:-3], data[:100], data[:60] + bytes([data[60] ^ 1]) + data[61:]):
        state.write_bytes(damage)
        with pytest.raises(fa.StateError, match="state"):
            fa.Trial.load(state)
    trial.save(state)
    with Backlog(PLAN, state, resume=state) as backlog:  # a state without a list of files is one to go on from as well
        assert len(backlog.files) == 0
    trial.save(state, positions=StreamPositions("nats ORDERS"))
    with pytest.raises(fa.StateError, match="saved by the consumer of a stream, not by a run over files"):
        Backlog(PLAN, state, resume=state)


def test_what_cannot_be_deleted_is_refused_before_anything_is_folded(folder: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    target = sorted(folder.iterdir())[0]
    (folder / "link.csv").symlink_to(write(tmp_path, 5))
    with pytest.raises(fa.SourceError, match="symbolic link"):
        fold(folder, state, delete=True)
    (folder / "link.csv").unlink()
    (folder / "hard.txt").hardlink_to(target)
    with pytest.raises(fa.SourceError, match="hard link"):
        fold(folder, state, delete=True)
    with Backlog(PLAN, state, delete_after=True) as backlog, pytest.raises(fa.SourceError, match="standard input"):
        backlog.find(["-"])
    assert not state.exists()
    assert len(list(folder.iterdir())) == 5


def test_names_of_files_that_are_gone(folder: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    names = [str(path) for path in sorted(folder.iterdir())]
    with Backlog(PLAN, state, delete_after=True) as backlog:
        backlog.fold(backlog.find(names), ReadOptions())
    with Backlog(PLAN, state, resume=state, delete_after=True) as backlog:
        assert backlog.find([*names, str(folder / "*.csv")]) == []
        assert len(backlog.outcome.absent) == 5
        with pytest.raises(fa.SourceError, match="matches no file"):
            backlog.find([str(folder / "never-there.csv")])


def test_a_draft_that_a_kill_has_left_is_gone_once_the_state_is_gone_on_from(folder: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    fold(folder, state)
    (tmp_path / "state.draft").write_bytes(b"a state less than a cohort apart")
    with Backlog(PLAN, state, resume=state):
        assert not (tmp_path / "state.draft").exists()


def test_one_run_at_a_time(tmp_path: Path) -> None:
    with locked(tmp_path / "state"), pytest.raises(fa.StateError, match="another program is writing to"):
        Backlog(PLAN, tmp_path / "state")
    with locked(tmp_path / "state"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("processes", [1, 2])
def test_a_file_of_which_nothing_was_folded_is_never_deleted(folder: Path, tmp_path: Path, processes: int) -> None:
    """All its records are faulty and dropped: the file is the only place where they are. Mended, it is folded."""
    plan = msgspec.structs.replace(PLAN, drop_limit=0.05)
    bad, mixed, state = folder / "bad.csv", folder / "mixed.csv", tmp_path / "state"
    bad.write_text("group,low,high\n" + 'a,"1,5",0\nb,"2,5",0\n' * 30)
    mixed.write_text("group,low,high\na,1,0\nb,x,0\n")

    def again() -> RunOutcome:
        with Backlog(plan, state, resume=state, delete_after=True) as backlog:
            return backlog.fold(backlog.find([str(folder / "*.csv")]), ReadOptions(), processes=processes)

    first = again()
    assert (list(folder.iterdir()), first.barren) == ([bad], [bad])
    assert first.dropped == {bad: 60, mixed: 1}
    assert (again().barren, bad.exists()) == ([bad], True)
    bad.write_text("group,low,high\n" + "a,1.5,0\nb,2.5,0\n" * 30)
    assert again().deleted == [bad]
    assert fa.Trial.load(state, plan).n == 4 * 20 + 1 + 60
