"""What is done with saved states and stores: effects, export, report, end; real processes, real files."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import foldaway as fa
from commands import foldaway
from foldaway import cli
from foldaway.account.stream_file import STATE, StreamFile
from foldaway.auditing.audit import audit
from foldaway.effects.door import OWN, TOLD
from foldaway.evidence.ledger import AUDITED
from foldaway.keeping.saved import StreamPositions, load
from foldaway.keeping.user_keys import user_key
from foldaway.simulation.datasets import checkout
from foldaway.simulation.demo import PLAN
from plans import replaced

ROWS = pa.Table.from_batches(list(checkout(2_000, seed=3)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own data")
    pa.csv.write_csv(ROWS, folder / "my trial.csv")
    pq.write_table(ROWS, folder / "trial.parquet")
    trial = fa.Trial(PLAN)
    trial.fold(ROWS)
    trial.save(folder / "state")
    return folder


def folded(name: str, rows: pa.Table = ROWS, *, key: bytes | None = None, **settings: Any) -> fa.Trial:
    """A trial of a design of its own, so that its end takes no other test's key."""
    trial = fa.Trial(replaced(PLAN, name=name, **settings), key=key)
    trial.fold(rows)
    return trial


def final_json(trial: fa.Trial, *, rounded: bool = False) -> str:
    """What is printed of a trial that has ended."""
    return replace(trial.read(TOLD if rounded else OWN), final=True).to_json() + "\n"


def effects_in(text: str) -> fa.Effects:
    return fa.Effects.from_json(text)


# foldaway effects


def in_a_file(trial: fa.Trial, place: Path) -> None:
    trial.save(place)


def in_a_store(trial: fa.Trial, place: Path) -> None:
    place.mkdir()
    trial.save(place / STATE, positions=StreamPositions("nats ORDERS"))


@pytest.mark.parametrize("saved", [in_a_file, in_a_store])
def test_effects_are_exact_for_oneself_and_rounded_for_others(saved: Any, tmp_path: Path) -> None:
    trial, place = folded(f"doors-{saved.__name__}"), tmp_path / "place"
    saved(trial, place)
    assert foldaway("effects", place, "--json").stdout == trial.effects().to_json() + "\n"
    assert f"{trial.plan.name}: 2,000 records" in foldaway("effects", place).stdout
    told = foldaway("effects", place, "--told", "--json").stdout
    assert told == trial.read(TOLD).to_json() + "\n"
    assert told != trial.effects().to_json() + "\n"
    (tmp_path / "told.json").write_text(told)
    assert foldaway("effects", "told.json", "--json", folder=tmp_path).stdout == told
    assert "has only rounded effects" in foldaway("effects", "told.json", "--exact", folder=tmp_path, code=1).stderr
    assert "not both" in foldaway("effects", place, "--exact", "--told", code=1).stderr


def test_others_are_told_the_same_until_the_trial_has_grown(tmp_path: Path) -> None:
    state = tmp_path / "state"
    folded("growing", ROWS[:1_500]).save(state)
    first = foldaway("effects", state, "--told").stdout
    for start, size, new in ((1_500, 60, False), (1_560, 440, True)):
        trial = fa.Trial.load(state)
        trial.fold(ROWS[start : start + size])
        trial.save(state)
        assert (foldaway("effects", state, "--told").stdout != first) == new
        assert foldaway("effects", state, "--json").stdout == fa.Trial.load(state).effects().to_json() + "\n"


def test_too_few_are_told_to_nobody(tmp_path: Path) -> None:
    folded("few", ROWS[:60]).save(tmp_path / "state")
    for command in (["effects", "--told"], ["report"]):
        done = foldaway(*command, "state", folder=tmp_path, code=1)
        assert done.stderr.startswith("error: there are no effects yet that others may see: they need 100 units")
        assert done.stdout == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state"]
    assert effects_in(foldaway("effects", tmp_path / "state", "--json").stdout).counts


def test_a_store_without_records_says_so(tmp_path: Path) -> None:
    assert foldaway("effects", "", folder=tmp_path, code=1).stderr == "error: the store . holds no records yet.\n"


# The key


def test_a_state_opens_with_its_key_wherever_that_is_named_and_not_without(tmp_path: Path) -> None:
    key, state = tmp_path / "trial.key", tmp_path / "state"
    folded("keyed", key=bytes(range(16))).save(state)
    key.write_text(bytes(range(16)).hex())
    words = ["effects", state, "--json"]
    assert foldaway(*words, "--key", key).stdout == foldaway(*words, env={"FOLDAWAY_TRIAL_KEY": str(key)}).stdout
    for command in ("effects", "report", "certificate", "power", "end"):
        done = foldaway(command, state, code=1)
        assert done.stderr == (
            f"error: {state}: the state is encrypted under a key that this machine's user does not have. Give the key "
            "that it was saved with: key=, or --key on the command line. If the trial has ended, the key is gone for "
            "good.\n"
        )
    (tmp_path / "other.key").write_text("00" * 16)
    assert "another key than the one given" in foldaway(*words, "--key", tmp_path / "other.key", code=1).stderr
    assert "there is no key file" in foldaway(*words, "--key", tmp_path / "none", code=1).stderr
    assert not (tmp_path / "none").exists()
    replaced(PLAN, name="keyed").save(tmp_path / "plan.toml")
    foldaway("run", tmp_path / "plan.toml", state, "--save", tmp_path / "again", "--key", key)
    assert fa.Trial.load(tmp_path / "again", key=bytes(range(16))).n == 2_000


# foldaway end


def test_what_has_ended_holds_its_rounded_effects_and_nothing_else(tmp_path: Path) -> None:
    trial, state = folded("ended"), tmp_path / "state"
    trial.save(state)
    before = state.read_bytes()
    done = foldaway("end", "state", "--json", "--yes", folder=tmp_path)
    found = audit(trial.plan, trial.tallies)  # whether somebody stands out depends on the key
    verdict = f"Before the end: {found.verdict()}\n" if found.findings else ""
    sealed = "state has ended: its tallies and its key are destroyed.\nHead of the ledger: "
    assert done.stderr.startswith(verdict + sealed)
    assert done.stdout == final_json(trial, rounded=True)
    assert user_key(trial.plan.design, new=False) is None
    assert oct(state.stat().st_mode & 0o777) == "0o600"
    assert load(state).state == b""
    assert foldaway("effects", state, "--json").stdout == done.stdout
    assert "the trial has ended: its effects are final" in foldaway("power", state, code=1).stderr
    foldaway("report", state, "-o", tmp_path / "report.html")
    assert "ended" in (tmp_path / "report.html").read_text()
    trial.plan.save(tmp_path / "plan.toml")
    merging = foldaway("run", tmp_path / "plan.toml", state, code=1)
    assert "the trial has ended and its tallies are destroyed" in merging.stderr
    state.write_bytes(before)  # a copy that somebody has kept cannot be read any more
    assert "If the trial has ended, the key is gone for good." in foldaway("effects", state, code=1).stderr


def test_the_end_destroys_the_key_that_was_given_and_prints_exact_effects_once(tmp_path: Path) -> None:
    key, store = tmp_path / "trial.key", tmp_path / "store"
    trial = folded("once", key=bytes(range(16)))
    in_a_store(trial, store)
    key.write_text(bytes(range(16)).hex())
    with StreamFile(store, trial.plan, "nats ORDERS", key=bytes(range(16))):
        assert "another program is using" in foldaway("end", store, "--key", key, "--yes", code=1).stderr
    done = foldaway("end", store, "--key", key, "--exact", "--json", "--yes")
    assert done.stdout == final_json(trial)
    assert not key.exists()
    assert foldaway("effects", store, "--json").stdout == final_json(trial, rounded=True)
    with StreamFile(store, trial.plan, "nats ORDERS") as opened:
        assert opened.read().tallies.ended
    trial.plan.save(tmp_path / "plan.toml")
    words = ["consume", "redis://127.0.0.1:9/orders", tmp_path / "plan.toml", "--store", store]
    assert "has ended" in foldaway(*words, code=1).stderr


def test_a_trial_that_nobody_could_be_told_of_ends_only_if_that_is_said(tmp_path: Path) -> None:
    trial, state = folded("small", ROWS[:60]), tmp_path / "state"
    trial.save(state)
    before = state.read_bytes()
    assert "effects would be withheld: there are no effects yet that" in foldaway("end", state, "--yes", code=1).stderr
    assert state.read_bytes() == before
    done = foldaway("end", state, "--without-effects", "--exact", "--json", "--yes")
    assert done.stdout == final_json(trial)
    assert "ended without effects" in foldaway("effects", state, code=1).stderr


def test_an_end_asks_at_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ended(*options: str, answer: str = "") -> bool:
        stdin = io.StringIO(answer)
        monkeypatch.setattr(stdin, "isatty", lambda: True)
        monkeypatch.setattr("sys.stdin", stdin)
        monkeypatch.setattr("sys.argv", ["foldaway", "end", str(state), *options])
        done = cli.exit_code() == 0
        asked = (
            "This destroys the tallies and the key, and cannot be undone. End the trial? [y/N]"
            in capsys.readouterr().err
        )
        assert asked is not bool(options)
        return done

    trial, state = folded("asked"), tmp_path / "state"
    trial.save(state)
    before = state.read_bytes()
    assert not ended(answer="\n")
    assert state.read_bytes() == before
    assert ended(answer="y\n")
    assert load(state).state == b""
    folded("not-asked").save(state)
    assert ended("--yes")


def test_an_end_audits_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial, state = folded("audited-once"), tmp_path / "state"
    trial.save(state)
    audits: list[Any] = []

    def counted(*args: Any) -> Any:
        audits.append(audit(*args))
        return audits[-1]

    monkeypatch.setattr("foldaway.auditing.audit.audit", counted)
    cli.app(["end", str(state), "--yes"], standalone_mode=False)
    noted = load(state).ledger.last(AUDITED)
    assert noted is not None
    assert [tuple(found.attacks) for found in audits] == [tuple(noted.content["attacks"])]


@pytest.mark.once
def test_a_second_end_finishes_what_a_crash_has_left(tmp_path: Path) -> None:
    """The effects are written and the key is still there: as if the first had been killed between the two."""
    trial, state = folded("crashed"), tmp_path / "state"
    trial.save(state)
    trial.conclude(without_effects=True)
    trial.save(state)
    assert user_key(trial.plan.design, new=False) is not None
    foldaway("end", state)
    assert user_key(trial.plan.design, new=False) is None
    assert "its exact numbers are gone" in foldaway("report", state, "--exact", code=1).stderr


# foldaway report


def test_a_report_is_for_others_unless_it_is_to_be_exact(folder: Path) -> None:
    done = foldaway("report", "state", "-o", "report.html", folder=folder)
    written = (folder / "report.html").read_text(encoding="utf-8")
    trial = fa.Trial.load(folder / "state")
    assert written == trial.report(told=trial.told()).html
    assert done.stderr == f"Report written to report.html ({len(written.encode()):,} bytes). Open it in a browser.\n"
    assert done.stdout == ""
    exact = foldaway("report", "state", "-o", "-", "--exact", folder=folder).stdout
    assert exact == trial.report().html + "\n"
    assert exact != written + "\n"


def test_other_places_for_a_report(folder: Path) -> None:
    foldaway("report", "state", folder=folder)
    assert (folder / "state.html").exists()
    printed = foldaway("report", "state", "-o", "-", folder=folder)
    trial = fa.Trial.load(folder / "state")
    assert printed.stdout == trial.report(told=trial.told()).html + "\n"
    assert printed.stderr == ""


def test_refusals_of_a_report(folder: Path) -> None:
    assert "is not a foldaway state" in foldaway("report", "my trial.csv", folder=folder, code=1).stderr
    assert not (folder / "my trial.csv.html").exists()
    before = (folder / "my trial.csv").read_bytes()
    done = foldaway("report", "state", "-o", "my trial.csv", folder=folder, code=1)
    assert done.stderr == "error: my trial.csv exists and is not a report; choose another name.\n"
    assert (folder / "my trial.csv").read_bytes() == before
    done = foldaway("report", "state", "-o", "report.pdf", folder=folder, code=1)
    assert "report.pdf must end in .html. For a PDF, open the page in a browser and print it." in done.stderr
    assert not (folder / "report.pdf").exists()


def test_a_run_writes_a_report_along_with_its_table(folder: Path) -> None:
    PLAN.save(folder / "whole.toml")
    done = foldaway("run", "whole.toml", "trial.parquet", "--report", "run.html", folder=folder)
    assert "\nrevenue  " in done.stdout
    trial = fa.fold_files(folder / "trial.parquet", PLAN)
    assert (folder / "run.html").read_text(encoding="utf-8") == trial.report(told=trial.told()).html
    foldaway("run", "whole.toml", "trial.parquet", "--report", "exact.html", "--exact", folder=folder)
    exact = fa.fold_files(folder / "trial.parquet", PLAN)
    assert (folder / "exact.html").read_text(encoding="utf-8") == exact.report().html
    refused = foldaway("run", "whole.toml", "trial.parquet", "--report", "whole.toml", folder=folder, code=1)
    assert refused.stderr == "error: whole.toml exists and is not a report; choose another name.\n"
    assert refused.stdout == ""


def test_a_report_never_gets_among_the_json_of_a_run(folder: Path) -> None:
    PLAN.save(folder / "whole.toml")
    done = foldaway("run", "whole.toml", "trial.parquet", "--report", "-", "--json", folder=folder)
    assert json.loads(done.stdout)["trial"] == PLAN.name
    assert (folder / "-").read_text(encoding="utf-8").startswith("<!doctype html>")
