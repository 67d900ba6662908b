"""Files of records on the command line, as a person or a script would use it: real processes, real files."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import foldaway as fa
from commands import at_terminal, foldaway
from foldaway import cli
from foldaway.simulation.datasets import checkout, visits
from foldaway.simulation.demo import PLAN as DEMO
from plans import replaced

SECRET = "SECRET-31415"


# With coefficients in the plan, a trial is the same however it is cut, saved and resumed.
PLAN = DEMO.calibrated(pa.Table.from_batches(list(checkout(3000, seed=99))))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan and two days of records in several formats."""
    folder = tmp_path_factory.mktemp("trial")
    PLAN.save(folder / "plan.toml")
    rows = pa.Table.from_batches(list(checkout(3000, seed=5)))
    for day, part in (("day1", rows[:2000]), ("day2", rows[2000:])):
        pq.write_table(part, folder / f"{day}.parquet")
        pa.csv.write_csv(part, folder / f"{day}.csv")
        with pa.ipc.new_stream(folder / f"{day}.arrow", part.schema) as writer:
            writer.write_table(part)
        lines = "".join(json.dumps(record) + "\n" for record in part.to_pylist())
        (folder / f"{day}.ndjson").write_text(lines)
    return folder


@pytest.fixture(scope="module")
def expected(folder: Path) -> dict[str, Any]:
    trial = fa.Trial(PLAN)
    for day in ("day1", "day2"):
        trial.fold(pq.read_table(folder / f"{day}.parquet"))
    answer: dict[str, Any] = json.loads(trial.effects().to_json())
    return answer


def check_same(answer: dict[str, Any], expected: dict[str, Any]) -> None:
    assert answer["counts"] == expected["counts"]
    for ours, theirs in zip(answer["effects"], expected["effects"], strict=True):
        for field, value in theirs.items():
            assert ours[field] == (pytest.approx(value, rel=1e-9) if isinstance(value, float) else value), field


@pytest.mark.parametrize("format", ["parquet", "csv", "arrow", "ndjson"])
def test_every_format_gives_the_same_effects(folder: Path, expected: dict[str, Any], format: str) -> None:
    done = foldaway("run", folder / "plan.toml", folder / f"day*.{format}", "--json")
    check_same(json.loads(done.stdout), expected)
    assert done.stderr == ""


@pytest.mark.parametrize("format", ["parquet", "csv", "arrow", "ndjson"])
def test_standard_input(folder: Path, expected: dict[str, Any], format: str) -> None:
    data = (folder / f"day2.{format}").read_bytes()
    done = foldaway("run", folder / "plan.toml", folder / "day1.parquet", "-", "--json", stdin=data)
    check_same(json.loads(done.stdout), expected)


def test_save_and_resume_is_one_run(folder: Path, expected: dict[str, Any], tmp_path: Path) -> None:
    state = tmp_path / "state"
    first = foldaway("run", folder / "plan.toml", folder / "day1.csv", "--save", state)
    assert "State written" in first.stderr
    second = foldaway("run", folder / "plan.toml", folder / "day2.csv", "--resume", state, "--save", state, "--json")
    check_same(json.loads(second.stdout), expected)
    check_same(json.loads(foldaway("run", folder / "plan.toml", state, "--json").stdout), expected)
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_processes_give_the_same_effects(folder: Path, expected: dict[str, Any]) -> None:
    done = foldaway("run", folder / "plan.toml", folder / "day*.csv", "--processes", "2", "--json")
    check_same(json.loads(done.stdout), expected)
    assert done.stderr == ""


def test_a_backlog_is_folded_deleted_and_told(folder: Path, expected: dict[str, Any], tmp_path: Path) -> None:
    inbox, state = tmp_path / "inbox", tmp_path / "state"
    inbox.mkdir()
    words: list[str | Path] = [
        "run",
        folder / "plan.toml",
        inbox / "*.csv",
        "--save",
        state,
        "--resume",
        state,
        "--delete-after",
        "--json",
    ]
    for day in ("day1", "day2"):
        (inbox / f"{day}.csv").write_bytes((folder / f"{day}.csv").read_bytes())
        done = foldaway(*words)
        assert 0 <= done.stderr.find("State written") < done.stderr.find(f"deleted {inbox / day}.csv")
        assert list(inbox.iterdir()) == []
    check_same(json.loads(done.stdout), expected)
    again = foldaway(*words)  # nothing new: the same effects, and the files are gone for good
    check_same(json.loads(again.stdout), expected)
    assert "matches no file any more" in again.stderr
    kept = foldaway("run", folder / "plan.toml", folder / "day1.csv", "--save", tmp_path / "kept")
    assert "deleted" not in kept.stderr
    skipped = foldaway(
        "run", folder / "plan.toml", folder / "day1.csv", "--save", tmp_path / "kept", "--resume", tmp_path / "kept"
    )
    assert f"1 file skipped: {tmp_path / 'kept'} already includes its records." in skipped.stderr


def test_few_records_wait_and_the_person_is_told(folder: Path, tmp_path: Path) -> None:
    lines = (folder / "day2.csv").read_text().splitlines()
    (tmp_path / "few.csv").write_text("\n".join(lines[:31]))
    words: list[str | Path] = ["run", folder / "plan.toml"]
    assert "records of 30 units, and a saved state needs the plan's cohort of 100" in foldaway(
        *words, tmp_path / "few.csv", "--save", tmp_path / "state", code=1
    ).stderr  # fmt: skip
    foldaway(*words, folder / "day1.csv", "--save", tmp_path / "state")
    done = foldaway(
        *words, tmp_path / "few.csv", "--save", tmp_path / "state", "--resume", tmp_path / "state", "--delete-after"
    )
    assert "Not in the effects until the next run: 30 records (1 file)." in done.stderr
    assert "2,000 records" in done.stdout
    assert (tmp_path / "few.csv").exists()


def test_nothing_is_deleted_that_is_not_saved(folder: Path) -> None:
    words: list[str | Path] = ["run", folder / "plan.toml", folder / "day1.csv"]
    assert "--delete-after needs --save" in foldaway(*words, "--delete-after", code=1).stderr


def test_going_on_without_saving(folder: Path, expected: dict[str, Any], tmp_path: Path) -> None:
    words: list[str | Path] = ["run", folder / "plan.toml"]
    foldaway(*words, folder / "day1.csv", "--save", tmp_path / "state")
    before = (tmp_path / "state").read_bytes()
    both = foldaway(*words, folder / "day*.csv", "--resume", tmp_path / "state", "--json")  # the first is in it already
    check_same(json.loads(both.stdout), expected)
    assert (tmp_path / "state").read_bytes() == before
    unchanged = f"Nothing was saved: {tmp_path / 'state'} is unchanged. To add these records to it, add --save "
    assert both.stderr == f"{unchanged}{tmp_path / 'state'}.\n"
    assert "cannot read" in foldaway(*words, folder / "day2.csv", "--resume", tmp_path / "none", code=1).stderr


def test_control_c_after_the_save_says_that_the_state_was_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*words: str | Path) -> str:
        monkeypatch.setattr("sys.argv", ["foldaway", *map(str, words)])
        assert cli.exit_code() == 130
        return capsys.readouterr().err

    monkeypatch.setattr(cli.run, "print_effects", Mock(side_effect=KeyboardInterrupt))
    one, other = tmp_path / "one", tmp_path / "other"
    assert f"stopped after {one} was written.\n" in stopped(
        "run", folder / "plan.toml", folder / "day1.csv", "--save", one
    )
    assert f"stopped after {other} was written.\n" in stopped("run", folder / "plan.toml", one, "--save", other)
    assert one.exists()
    assert other.exists()


def test_going_on_into_another_state(folder: Path, expected: dict[str, Any], tmp_path: Path) -> None:
    words: list[str | Path] = ["run", folder / "plan.toml"]
    one, other = tmp_path / "one", tmp_path / "other"
    foldaway(*words, folder / "day1.csv", "--save", one)
    before = one.read_bytes()
    foldaway(*words, folder / "day2.csv", "--resume", one, "--save", other)
    again = foldaway(*words, folder / "day*.csv", "--resume", other, "--save", other, "--json")
    check_same(json.loads(again.stdout), expected)
    assert one.read_bytes() == before


def test_another_delimiter(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "day1.csv").write_text((folder / "day1.csv").read_text().replace(",", ";"))
    words: list[str | Path] = ["run", folder / "plan.toml", tmp_path / "day1.csv"]
    assert "2,000 records" in foldaway(*words, "--delimiter", ";").stdout
    assert "2,000 records" in foldaway(*words).stdout  # its first line tells
    assert "is separated by semicolons" in foldaway(*words, "--delimiter", ",", code=1).stderr
    assert "one character" in foldaway(*words, "--delimiter", ";;", code=1).stderr


def test_a_state_is_never_lost_to_a_slip(folder: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    words = ["run", str(folder / "plan.toml"), str(folder / "day1.csv"), "--save"]
    foldaway(*words, state)
    before = state.read_bytes()
    assert "continue it with --resume" in foldaway(*words, state, code=1).stderr
    assert "is not a foldaway state" in foldaway(*words, folder / "plan.toml", code=1).stderr
    assert "there is no folder" in foldaway(*words, tmp_path / "none" / "state", code=1).stderr
    assert state.read_bytes() == before
    assert fa.Plan.load(folder / "plan.toml") == PLAN
    foldaway(*words, state, "--overwrite")


def test_a_key_that_is_missing_or_no_key(folder: Path, tmp_path: Path) -> None:
    plan = fa.Plan(**{**_settings(DEMO), "moments": {"bootstrap": 100}})
    plan.save(tmp_path / "plan.toml")
    words = ["run", str(tmp_path / "plan.toml"), str(folder / "day1.csv")]
    (tmp_path / "no-key").write_text("hello")
    assert "does not hold a key" in foldaway(*words, "--key", tmp_path / "no-key", code=1).stderr
    assert "cannot be made" in foldaway(*words, "--key", tmp_path / "none" / "key", code=1).stderr
    foldaway(*words, "--save", tmp_path / "state")  # under the user's own key
    missing = foldaway(
        *words, "--resume", tmp_path / "state", "--save", tmp_path / "state", "--key", tmp_path / "other", code=1
    )
    assert "there is no key file" in missing.stderr
    assert not (tmp_path / "other").exists()
    assert "by user_id, poisson weights" in foldaway("plan", "check", tmp_path / "plan.toml").stdout


def test_nothing_folded_is_an_error(folder: Path, tmp_path: Path) -> None:
    header = (folder / "day1.csv").read_text().splitlines()[0]
    (tmp_path / "empty.csv").write_text(header + "\n")
    assert "no records were folded" in foldaway("run", folder / "plan.toml", tmp_path / "empty.csv", code=1).stderr
    assert foldaway("--version").stdout.startswith("foldaway ")


def test_merging_shards_is_one_run(folder: Path, expected: dict[str, Any], tmp_path: Path) -> None:
    for day in ("day1", "day2"):
        foldaway("run", folder / "plan.toml", folder / f"{day}.csv", "--save", tmp_path / day)
    run = ("run", folder / "plan.toml", tmp_path / "day*")
    merged = foldaway(*run, "--save", tmp_path / "both", "--json")
    check_same(json.loads(merged.stdout), expected)
    check_same(json.loads(foldaway("effects", tmp_path / "both", "--json").stdout), expected)
    (tmp_path / "day3").write_bytes((tmp_path / "day2").read_bytes())
    assert "count its records twice" in foldaway(*run, code=1).stderr
    assert "is no state" in foldaway(*run, folder / "day1.csv", code=1).stderr
    assert "without --resume" in foldaway(*run, "--resume", tmp_path / "both", code=1).stderr


def test_a_person_gets_a_table_within_80_columns(folder: Path) -> None:
    done = foldaway("run", folder / "plan.toml", folder / "day1.csv")
    assert re.search(r"^revenue .*(higher|lower|not decided yet)", done.stdout, flags=re.MULTILINE)
    assert "revenue: treatment against control" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    more = foldaway("run", folder / "plan.toml", folder / "day1.csv", "--all")
    assert "revenue: treatment against control" in more.stdout
    assert len(re.findall(r"^\w+ +(welch|jackknife) ", more.stdout, flags=re.MULTILINE)) == 8
    assert "adj. p" in more.stdout


def test_progress_is_shown_at_a_terminal_and_only_there(folder: Path) -> None:
    done = at_terminal("run", folder / "plan.toml", folder / "day1.csv", "--json")
    assert "folding" in done.stderr
    assert json.loads(done.stdout)["counts"]


def test_control_c_stops_a_read_at_once_and_says_what_stays(folder: Path) -> None:
    """Blocks are read without end: a handler of Arrow's own could lose the signal, and an end in haste could abort."""
    words = [sys.executable, "-m", "foldaway", "run", str(folder / "plan.toml"), "-", "--format", "csv"]
    header, records = (folder / "day1.csv").read_bytes().split(b"\n", 1)
    running = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert running.stdin is not None
    assert running.stderr is not None
    with suppress(BrokenPipeError), running.stdin as endless:
        endless.write(header + b"\n")
        for _ in range(100):  # several blocks: the first of them is being read
            endless.write(records)
        running.send_signal(signal.SIGINT)
        deadline = time.monotonic() + 60
        while running.poll() is None and time.monotonic() < deadline:
            endless.write(records)
    assert running.wait(60) == 130
    assert running.stderr.read() == b"stopped; what was saved before is unchanged.\n"


def test_errors_fit_a_terminal_and_are_one_line_elsewhere(folder: Path) -> None:
    words = ["site", "run", str(folder / "plan.toml"), str(folder / "day1.csv"), "--server", "http://x", "--token", "x"]
    (line,) = foldaway(*words, code=1).stderr.splitlines()
    assert "is not for sites" in line
    shown = at_terminal(*words).stderr
    told = shown[shown.index("error: ") :].splitlines()  # behind the progress bar
    assert max(map(len, told)) <= 80
    assert " ".join(told) == line


def test_a_faulty_file_is_refused_by_name_without_its_values(folder: Path, tmp_path: Path) -> None:
    text = (folder / "day1.csv").read_text().splitlines()
    cells = text[5].split(",")
    cells[1] = SECRET
    (tmp_path / "bad.csv").write_text("\n".join([*text[:5], ",".join(cells), *text[6:]]))
    state = tmp_path / "state"
    done = foldaway("run", folder / "plan.toml", tmp_path / "bad.csv", "--save", state, code=1)
    assert "bad.csv" in done.stderr
    assert "1 wrong type" in done.stderr
    assert SECRET not in done.stderr + done.stdout
    assert not state.exists()


@pytest.mark.parametrize("words", [["nothing.csv"], ["*.nope"], ["plan.toml"]])
def test_files_that_are_not_there_or_not_records(folder: Path, words: list[str]) -> None:
    done = foldaway("run", folder / "plan.toml", *(folder / word for word in words), code=1)
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


def test_a_state_of_another_plan_or_a_damaged_one_is_refused(folder: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    foldaway("run", folder / "plan.toml", folder / "day1.csv", "--save", state)
    other = fa.Plan(name="other", arm="variant", arms=PLAN.arms, outcomes=["revenue"])
    other.save(tmp_path / "other.toml")
    done = foldaway("run", tmp_path / "other.toml", folder / "day2.csv", "--resume", state, "--save", state, code=1)
    assert "another plan" in done.stderr
    state.write_bytes(state.read_bytes()[:-7])
    assert "the state is damaged, or" in foldaway("effects", state, code=1).stderr


def test_units_together_make_each_file_one_batch(tmp_path: Path) -> None:
    plan = fa.Plan(
        name="visits", arm="variant", arms={"control": 0.5, "treatment": 0.5}, outcomes=["minutes"], unit="user_id",
        moments=fa.Moments(), records_per_unit="together",
    )  # fmt: skip
    plan.save(tmp_path / "plan.toml")
    rows = pa.Table.from_batches(list(visits(60, seed=1)))
    shuffled = rows.take(pa.array([(i * 7919) % rows.num_rows for i in range(rows.num_rows)]))
    pa.csv.write_csv(shuffled, tmp_path / "visits.csv")
    answer = json.loads(foldaway("run", tmp_path / "plan.toml", tmp_path / "visits.csv", "--json").stdout)
    trial = fa.Trial(plan)
    trial.fold(rows)
    theirs = trial.effects().filter(estimator="difference", se_kind="CR1")[0]
    ours = [row for row in answer["effects"] if row["estimator"] == "difference" and row["se_kind"] == "CR1"]
    assert ours[0]["std_error"] == pytest.approx(theirs.std_error, rel=1e-9)
    assert answer["sample_ratio"]["counted"] == "units"


def test_a_bootstrap_resumes_under_its_key(folder: Path, tmp_path: Path) -> None:
    plan = fa.Plan(**{**_settings(DEMO), "moments": {"bootstrap": 200}})
    plan.save(tmp_path / "plan.toml")
    state, key = tmp_path / "state", tmp_path / "key"
    words: list[str | Path] = ["run", tmp_path / "plan.toml"]
    foldaway(*words, folder / "day1.csv", "--save", state, "--key", key)
    assert key.stat().st_mode & 0o777 == 0o600
    assert bytes.fromhex(key.read_text()) not in state.read_bytes()
    done = foldaway(*words, folder / "day2.csv", "--resume", state, "--save", state, "--key", key, "--json")
    whole = fa.Trial(plan, key=bytes.fromhex(key.read_text()))
    whole.fold(pq.read_table(folder / "day1.parquet"))
    whole.fix()  # as the first day's save does, it fixes coefficients
    whole.fold(pq.read_table(folder / "day2.parquet"))
    check_same(json.loads(done.stdout), json.loads(whole.effects().to_json()))
    refused = foldaway(*words, folder / "day2.csv", "--resume", state, "--save", state, code=1).stderr
    assert "encrypted under another key than this user's own: give that one with key=, or --key" in refused
    (tmp_path / "other").write_text("00" * 16)
    other = foldaway(
        *words, folder / "day2.csv", "--resume", state, "--save", state, "--key", tmp_path / "other", code=1
    )
    assert "another key" in other.stderr


def _settings(plan: fa.Plan) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads(plan.to_json())
    return settings


def test_a_missing_column_is_met_with_the_nearest_name_but_never_with_a_record(folder: Path, tmp_path: Path) -> None:
    replaced(DEMO, outcomes=["revenu"]).save(tmp_path / "plan.toml")
    said = foldaway("run", tmp_path / "plan.toml", folder / "day1.parquet", code=1).stderr
    assert "it has no column 'revenu'; did you mean 'revenue'?" in said
    (tmp_path / "no-header.csv").write_text("control,de,revenues,1,2,3\n")
    said = foldaway("run", tmp_path / "plan.toml", tmp_path / "no-header.csv", code=1).stderr
    assert "revenues" not in said
    assert "first line name the columns" in said
