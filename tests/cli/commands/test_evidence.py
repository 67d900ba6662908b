"""`foldaway plan check --register`, `certificate` and `verify`: from a plan to a proof, as their users have them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pytest

import foldaway as fa
from commands import foldaway
from evidence_of import PLAN, folded, records

SCRIPT = Path(__file__).parents[3] / "tools" / "verify_certificate.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    PLAN.save(tmp_path / "plan.toml")
    pyarrow.csv.write_csv(pa.table(records()), tmp_path / "records.csv")
    return tmp_path


def test_from_a_registered_plan_to_a_certificate_that_is_checked_elsewhere(folder: Path) -> None:
    key = ("--key", "trial.key")
    said = foldaway("plan", "check", "plan.toml", "--register", "state", *key, folder=folder).stdout
    head = said.partition("Head of the ledger: ")[2].partition(" ")[0]
    words = ("run", "plan.toml", "records.csv", "--resume", "state", "--save", "state", *key)
    assert "ledger" not in foldaway(*words, folder=folder).stderr
    foldaway("certificate", "state", "-o", "open.json", *key, folder=folder)
    open_ = foldaway("verify", "open.json", "--head", head, "--state", "state", *key, folder=folder).stdout
    assert "Every number of the effects was computed again from the tallies in state" in open_
    assert "the trial is still open" in open_

    for name in ("state", "trial.key"):  # what a second analyst keeps
        (folder / f"kept {name}").write_bytes((folder / name).read_bytes())
    done = foldaway("end", "state", *key, "--yes", folder=folder)
    assert "Head of the ledger: " in done.stderr
    assert not (folder / "trial.key").exists()
    foldaway("certificate", "state", folder=folder)
    name = "state.certificate.json"
    checked = foldaway(
        "verify", name, "--head", head, "--state", "kept state", "--key", "kept trial.key", folder=folder
    )
    said = " ".join(checked.stdout.split())
    assert "up to 'key in use', existed when" in said
    assert "No step is missing" in said
    assert "the tallies were audited with simulated attacks: " in said
    assert re.search(r", between \d\d:00 and \d\d:00: the tallies of about [\d,]+ records were stored", said)
    assert "computed again from the tallies in kept state: all agree" in said
    effects = fa.Effects.load(folder / "state")
    assert f"the trial ended with about {sum(effects.counts.values()):,} records, and its tallies" in said
    assert checked.stdout.endswith(f"The effects in it:\n\n{effects}\n")
    alone = subprocess.run([sys.executable, SCRIPT, folder / name, head], capture_output=True, text=True)
    assert alone.returncode == 0, alone.stdout
    assert alone.stdout.startswith("valid; head of the ledger: ")

    (folder / name).write_bytes((folder / name).read_bytes().replace(b"checkout", b"checkin_", 1))
    wrong = foldaway("verify", name, "--json", folder=folder, code=1)
    assert json.loads(wrong.stdout)["good"] is False
    assert "is not a valid certificate" in foldaway("verify", name, folder=folder, code=1).stdout
    assert subprocess.run([sys.executable, SCRIPT, folder / name], capture_output=True).returncode == 1


def test_a_certificate_replaces_a_file_only_if_told_to(folder: Path) -> None:
    folded().save(folder / "state")
    state = (folder / "state").read_bytes()
    (folder / "proof.json").write_text("what was there")
    for place, why in (("proof.json", "use --overwrite"), (".", "is a folder"), ("none/proof.json", "no folder none")):
        refused = foldaway("certificate", "state", "-o", place, folder=folder, code=1)
        assert why in refused.stderr
    assert (folder / "proof.json").read_text() == "what was there"
    assert (folder / "state").read_bytes() == state  # refused before anything was noted
    foldaway("certificate", "state", "-o", "proof.json", "--overwrite", folder=folder)
    foldaway("verify", "proof.json", folder=folder)


def test_other_tallies_than_those_that_were_certified_are_told_apart(folder: Path) -> None:
    folded().save(folder / "one")
    folded(7).save(folder / "two")
    foldaway("certificate", "one", folder=folder)
    said = foldaway("verify", "one.certificate.json", "--state", "two", folder=folder, code=1).stdout
    assert "The effects cannot be read from two: its tallies are other ones." in said


def test_an_ended_state_without_a_ledger_or_a_file_that_is_not_there_is_told(folder: Path) -> None:
    assert "there is no state none" in foldaway("certificate", "none", folder=folder, code=1).stderr
    assert "cannot read the certificate none" in foldaway("verify", "none", folder=folder, code=1).stderr


def test_a_wrong_file_or_option_is_not_taken_for_a_wrong_certificate(folder: Path) -> None:
    foldaway("run", "plan.toml", "records.csv", "--save", "state", folder=folder)
    foldaway("certificate", "state", "-o", "proof.json", folder=folder)
    state = foldaway("verify", "state", folder=folder, code=1)
    assert state.stderr == "error: state is a saved state. `foldaway certificate state` writes its certificate.\n"
    short = foldaway("verify", "proof.json", "--head", "e5b6", folder=folder, code=1)
    assert short.stderr == "error: --head e5b6 is too short: give at least 32 digits of the hash.\n"
    assert state.stdout == short.stdout == ""


def test_a_report_shows_the_ledger(folder: Path) -> None:
    folded().save(folder / "state")
    foldaway("report", "state", "-o", "open.html", folder=folder)
    assert "Can it be proven?" in (folder / "open.html").read_text()
    foldaway("end", "state", "--yes", folder=folder)
    foldaway("report", "state", "-o", "ended.html", folder=folder)
    ended = "The trial ended with about 400 records, and its tallies were deleted."
    assert ended in (folder / "ended.html").read_text()


def test_only_who_has_signed_the_ledger_can_certify_it(folder: Path) -> None:
    folded().save(folder / "state")
    foldaway("end", "state", "--yes", folder=folder)
    other = {"XDG_STATE_HOME": str(folder / "another user")}
    said = foldaway("certificate", "state", folder=folder, env=other, code=1).stderr
    assert "another user has signed the ledger" in said
