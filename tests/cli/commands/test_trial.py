"""Trials on a server, as a person or a script would use them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import foldaway as fa
from commands import at_terminal, foldaway
from foldaway.cli.commands.trial import _print_statuses
from registered import admin, plan_file, register
from served import Served

SECRET = "SECRET-17320"


def test_devices_are_invited(server: Served, tmp_path: Path) -> None:
    plan = fa.Plan(
        name="invited",
        arm="group",
        arms={"a": 0.5, "b": 0.5},
        outcomes=["y"],
        federated=fa.Federated("sums", invited=True),
    )
    (tmp_path / "invited.toml").write_text(plan.to_toml())
    checked = foldaway("plan", "check", tmp_path / "invited.toml").stdout
    assert "needs an invitation" in " ".join(checked.split())
    done = foldaway("trial", "create", tmp_path / "invited.toml", env=admin(server))
    assert done.stderr.endswith("foldaway token invite invited\n")
    token = foldaway("token", "issue", "invite", "invited", env=admin(server)).stdout.strip()
    own = {"FOLDAWAY_SERVER": server.url, "FOLDAWAY_TOKEN": token}
    lines = foldaway("token", "invite", "invited", "--count", "3", env=own).stdout.splitlines()
    assert len({line for line in lines if re.fullmatch(r"[\w-]{32}", line)}) == len(lines) == 3
    assert "needs an invite token" in foldaway("token", "invite", "other", code=1, env=own).stderr


def test_a_life_on_the_command_line(server: Served, folder: Path) -> None:
    plan = plan_file(folder, "life")
    done = foldaway("trial", "create", plan, env=admin(server))
    assert done.stderr == "Next, with the ingest token as FOLDAWAY_TOKEN: foldaway send life FILE\n"
    made = done.stdout
    assert "life is registered" in made
    ingest, read = re.findall(r"fa_\S+", made)
    as_ingest = {"FOLDAWAY_SERVER": server.url, "FOLDAWAY_TOKEN": ingest}
    as_read = {"FOLDAWAY_SERVER": server.url, "FOLDAWAY_TOKEN": read}
    early = foldaway("effects", "life", code=1, env=as_read)
    assert early.stderr.startswith("error: there are no effects yet")
    sent = foldaway("send", "life", folder / "day*.parquet", env=as_ingest)
    assert sent.stdout.splitlines()[0] == "3,000 records sent."
    assert sent.stderr == ""  # no progress bar where there is no terminal
    repeated = foldaway("trial", "create", plan, env=admin(server)).stdout
    assert "exists already. Earlier tokens stay valid (`foldaway token list`). Two more" in " ".join(repeated.split())
    assert max(map(len, repeated.splitlines())) <= 80
    again = foldaway("send", "life", folder / "day*.parquet", env=as_ingest)
    assert again.stdout.splitlines()[0] == "0 records sent. 3,000 were there already."
    status = foldaway("trial", "status", "life", env=as_read).stdout
    assert re.search(
        r"life\s+open\s+3,000\s+100\s+0\n\nCounts of records are rounded, and in effects each arm's by itself",
        status,
    )
    assert "life" in foldaway("trial", "status", env=admin(server)).stdout
    effects = foldaway("effects", "life", env=as_read).stdout
    assert "\nrevenue  " in effects
    assert "final" not in effects
    assert max(map(len, effects.splitlines())) <= 80
    assert foldaway("effects", f"{server.url}/v1/trials/life", env=as_read).stdout == effects
    ahead = foldaway("power", "life", "--width", "1", env=as_read).stdout
    assert ahead.startswith("life has 3,000 records. With 6,000 records")
    assert max(map(len, ahead.splitlines())) <= 80
    page = foldaway("report", "life", "-o", folder / "life.html", env=as_read)
    assert "Report written to" in page.stderr
    assert (folder / "life.html").read_text().startswith("<!doctype html>")
    assert "<code>foldaway certificate</code>" in (folder / "life.html").read_text()
    assert 'id="proven"' in (folder / "life.html").read_text()  # the ledger, which only the server has
    assert "<!doctype html>" in foldaway("report", "life", "-o", "-", "--exact", env=admin(server)).stdout
    whole = fa.Trial(fa.Plan.load(plan))
    for day in ("day1", "day2"):
        whole.fold(pq.read_table(folder / f"{day}.parquet"))
    refused = foldaway("effects", "life", "--exact", code=1, env=as_read).stderr
    assert "this needs an admin token; you sent a read token for life." in refused
    answer = json.loads(foldaway("effects", "life", "--exact", "--json", env=admin(server)).stdout)
    expected = json.loads(whole.effects().to_json())
    for ours, theirs in zip(answer["effects"]["effects"], expected["effects"], strict=True):
        assert ours["estimate"] == pytest.approx(theirs["estimate"], rel=1e-9)
    told = json.loads(foldaway("effects", "life", "--json", env=as_read).stdout)["effects"]
    assert (told["rounded"], answer["effects"]["rounded"]) == (True, False)
    for row, exact in zip(told["effects"], expected["effects"], strict=True):
        assert row["estimate"] != exact["estimate"]
        assert abs(row["estimate"] - exact["estimate"]) < exact["std_error"] / 2
    asked = at_terminal("end", "life", typed=b"n\n", env=admin(server))
    assert asked.returncode == 1
    assert "cannot be undone. End life? [y/N]" in asked.stderr
    assert "life was not ended; nothing has changed." in asked.stderr
    ended = at_terminal("end", "life", "--yes", typed=b"", env=admin(server)).stdout
    assert "std.err." in foldaway("end", "life", "--all", env=admin(server)).stdout
    assert "\nrevenue  " in ended
    assert ended.startswith("life has ended; these effects are final.\n\n")
    assert "\n\nlife: 3,000 records" in ended
    assert foldaway("end", "life", env=admin(server)).stdout == ended
    assert foldaway("effects", "life", env=as_read).stdout == ended
    proof = folder / "life.json"
    foldaway("certificate", "life", "-o", proof, env=as_read)
    assert "use --overwrite" in foldaway("certificate", "life", "-o", proof, env=as_read, code=1).stderr
    foldaway("certificate", "life", "-o", proof, "--overwrite", env=as_read)
    assert "is valid" in foldaway("verify", proof).stdout
    tokens = foldaway("token", "list", env=admin(server)).stdout
    refused = foldaway("trial", "create", plan, env=admin(server), code=1).stderr
    assert refused.startswith("error: life has ended: it takes no more records, and no tokens were issued.")
    assert foldaway("token", "list", env=admin(server)).stdout == tokens
    wrong = foldaway("send", "life", folder / "day1.parquet", code=1, env=as_read).stderr
    assert "this needs an ingest token for life; you sent a read token for life." in wrong
    late = foldaway("send", "life", folder / "day1.parquet", env=as_ingest).stdout  # it has all of this already
    assert "life has ended. 2,000 records of these files came before that" in late
    _put_away(server, folder)
    plan_file(folder, "empty")
    register(server, folder / "empty.toml")
    none = foldaway("effects", "empty", "--exact", code=1, env=admin(server)).stderr
    assert "no effects yet, not even exact ones: the server stores nothing until 100 units" in " ".join(none.split())
    assert "--without-effects" in foldaway("end", "empty", "--yes", code=1, env=admin(server)).stderr
    ended = foldaway("end", "empty", "--without-effects", "--yes", env=admin(server)).stdout
    assert "ended without effects" in ended


def _put_away(server: Served, folder: Path) -> None:
    away, env = folder / "away" / "life", admin(server)
    there = foldaway("end", "life", "--yes", "--archive", folder, code=1, env=env).stderr
    assert "is there already: name a new folder" in there
    said = foldaway("end", "life", "--yes", "--archive", away, env=env).stderr
    assert f"Certificate, effects and report are in {away}." in said
    assert "life is removed from the server, with its tokens." in said
    assert {file.name for file in away.iterdir()} == {"certificate.json", "effects.json", "report.html"}
    assert "is valid" in foldaway("verify", away / "certificate.json").stdout
    effects = fa.Effects.load(away / "effects.json")
    assert effects.final
    assert effects.rounded
    assert str(effects) in foldaway("effects", away).stdout
    assert "there is no trial with this name" in foldaway("effects", "life", code=1, env=env).stderr


def test_statuses_name_the_teams_where_there_are_any(capsys: pytest.CaptureFixture[str]) -> None:
    about = {"status": "open", "records": 100, "cohort": 100, "left_out": 0}
    _print_statuses([{"name": "mine", "team": "red", **about}, {"name": "nobody's", "team": None, **about}])
    heading, _, *rows = capsys.readouterr().out.splitlines()
    assert heading.split()[:3] == ["trial", "team", "status"]
    assert [row.split()[1] for row in rows[:2]] == ["red", "–"]
    _print_statuses([{"name": "mine", "team": None, **about}])
    assert "team" not in capsys.readouterr().out


def test_an_address_ends_a_trial_but_not_while_effects_would_be_withheld(server: Served, tmp_path: Path) -> None:
    """Three of the first 400 units carry the second outcome: its rows would be withheld, and the others not."""
    fa.Plan(name="partly", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y", "rare"], unit="u").save(
        tmp_path / "partly.toml"
    )
    who = register(server, tmp_path / "partly.toml")
    for first, carriers in ((0, 3), (400, 200)):
        rows = ({"g": "ab"[i % 2], "u": first + i, "y": i % 7, "rare": int(i < carriers)} for i in range(400))
        (tmp_path / f"{first}.ndjson").write_text("\n".join(map(json.dumps, rows)))
    foldaway("send", "partly", tmp_path / "0.ndjson", env=who["ingest"])
    address = f"{server.url}/v1/trials/partly"
    before = foldaway("effects", address, "--exact", env=who["admin"]).stdout
    refused = foldaway("end", address, "--yes", code=1, env=who["admin"]).stderr
    assert re.search("effects would be withheld: .* such as rare", refused)
    assert foldaway("effects", address, "--exact", env=who["admin"]).stdout == before
    foldaway("send", "partly", tmp_path / "400.ndjson", env=who["ingest"])
    ended = foldaway("end", address, "--yes", "--json", env=who["admin"]).stdout
    assert json.loads(ended)["final"]
    assert "destroyed" in foldaway("effects", address, "--exact", code=1, env=who["admin"]).stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["trial", "status", "unknown"], "there is no trial"),
        (["send", "unknown", "day1.parquet"], "there is no trial"),
        (["send", "wrong", "nothing.parquet"], "nothing.parquet"),
        (["send", "wrong", "-"], "standard input cannot be sent again"),
        (["send", "wrong", "faulty.ndjson"], "1 of 2 records is faulty"),
        (["send", "wrong", "faulty.csv"], "faulty.csv, first in line 3: "),
        (["send", "wrong", "ragged.ndjson"], "ragged.ndjson, line 2 is not a record: 1 line cannot be read"),
        (["trial", "create", "nothing.toml"], "nothing.toml"),
        (["trial", "status", "--server", "localhost"], "begins with http"),
        (["trial", "status", "--server", "http://[::"], "cannot be used"),
        (["trial", "status", "--ca", "nothing.pem"], "cannot be used"),
        (["trial", "status", "--token", "fa_x"], "not complete, or not of this server; this needs a read token."),
    ],
)
def test_errors_are_sentences_without_values(
    server: Served, folder: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], sentence: str
) -> None:
    monkeypatch.chdir(folder)
    if not (folder / "wrong.toml").exists():
        register(server, plan_file(folder, "wrong"))
    row = {"variant": "control", "revenue": 1.0, "converted": 1, "revenue_before": 1.0, "country": "de", "user_id": "u"}
    good, bad = json.dumps(row), json.dumps({**row, "revenue": SECRET})
    (folder / "faulty.ndjson").write_text(f"{good}\n{bad}\n")
    (folder / "faulty.csv").write_text(
        "\n".join(",".join(map(str, line)) for line in (row, row.values())) + f"\n{SECRET}" + ",1" * 5
    )
    (folder / "ragged.ndjson").write_text(f"{good}\n{SECRET}\n")
    done = foldaway(*words, code=1, env=admin(server))
    assert sentence in done.stderr
    assert done.stderr.startswith("error: ")
    assert SECRET not in done.stdout + done.stderr


def test_what_is_missing_is_named() -> None:
    done = foldaway("trial", "status", code=2, env={"FOLDAWAY_SERVER": "", "FOLDAWAY_TOKEN": ""})
    assert "--server" in done.stderr
    assert "FOLDAWAY_SERVER" in done.stderr
    assert max(map(len, done.stderr.splitlines())) <= 80


@pytest.mark.parametrize("words", [["serve"], ["send"], ["key"], ["token", "issue"], ["trial"], ["trial", "create"]])
def test_help_fits(words: list[str]) -> None:
    done = foldaway(*words, "--help")
    assert max(map(len, done.stdout.splitlines())) <= 80
