"""The commands around a server, as a person or a script would use them."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import foldaway as fa
from commands import foldaway
from foldaway.simulation.datasets import checkout
from foldaway.simulation.demo import PLAN
from plans import replaced
from served import Served, eventually
from servers import Nursery

SECRET = "SECRET-17320"


@pytest.fixture(scope="module")
def server(served_from: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("cli"), served_from, measured=True) as server:
        yield server


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Plans and files of records."""
    folder = tmp_path_factory.mktemp("files")
    records = pa.Table.from_batches(list(checkout(3000, seed=5)))
    for day, part in (("day1", records[:2000]), ("day2", records[2000:])):
        pq.write_table(part, folder / f"{day}.parquet")
    return folder


def plan_file(folder: Path, name: str, **settings: Any) -> Path:
    plan = replaced(PLAN, name=name, **settings)
    plan.save(folder / f"{name}.toml")
    return folder / f"{name}.toml"


def register(server: Served, plan: Path) -> dict[str, dict[str, str]]:
    """A trial; what the environment of those who send, read and rule is."""
    made = json.loads(foldaway("trial", "create", plan, "--json", env=admin(server)).stdout)
    return {
        "ingest": {"FOLDAWAY_SERVER": server.url, "FOLDAWAY_TOKEN": made["ingest_token"]},
        "read": {"FOLDAWAY_SERVER": server.url, "FOLDAWAY_TOKEN": made["read_token"]},
        "admin": admin(server),
    }


def admin(server: Served) -> dict[str, str]:
    return {"FOLDAWAY_SERVER": server.url, "FOLDAWAY_TOKEN": server.admin}


def test_a_life_on_the_command_line(server: Served, folder: Path) -> None:
    plan = plan_file(folder, "life")
    made = foldaway("trial", "create", plan, env=admin(server)).stdout
    assert "life is registered" in made
    ingest, read = re.findall(r"fa_\S+", made)
    as_ingest = {"FOLDAWAY_SERVER": server.url, "FOLDAWAY_TOKEN": ingest}
    as_read = {"FOLDAWAY_SERVER": server.url, "FOLDAWAY_TOKEN": read}
    early = foldaway("trial", "effects", "life", code=1, env=as_read)
    assert early.stderr.startswith("error: no effects yet")
    sent = foldaway("send", "life", folder / "day*.parquet", env=as_ingest)
    assert sent.stdout.splitlines()[0] == "3,000 records sent."
    assert sent.stderr == ""  # no progress bar where there is no terminal
    again = foldaway("send", "life", folder / "day*.parquet", env=as_ingest)
    assert again.stdout.splitlines()[0] == "0 records sent. 3,000 were there already."
    status = foldaway("trial", "status", "life", env=as_read).stdout
    assert re.search(r"life\s+open\s+3,000\s+0\s+100\s+0", status)
    assert "life" in foldaway("trial", "list", env=admin(server)).stdout
    effects = foldaway("trial", "effects", "life", env=as_read).stdout
    assert "revenue: treatment against control" in effects
    assert "final" not in effects
    assert max(map(len, effects.splitlines())) <= 80
    whole = fa.Trial(fa.Plan.load(plan))
    for day in ("day1", "day2"):
        whole.fold(pq.read_table(folder / f"{day}.parquet"))
    answer = json.loads(foldaway("trial", "effects", "life", "--json", env=as_read).stdout)
    expected = json.loads(whole.effects().to_json())
    for ours, theirs in zip(answer["effects"]["effects"], expected["effects"], strict=True):
        assert ours["estimate"] == pytest.approx(theirs["estimate"], rel=1e-9)
    closed = foldaway("trial", "close", "life", env=admin(server)).stdout
    assert "revenue: treatment against control" in closed
    assert closed.startswith("life is closed; these effects are final.\n\nlife: 3,000 records")
    assert foldaway("trial", "close", "life", env=admin(server)).stdout == closed
    assert foldaway("trial", "effects", "life", env=as_read).stdout == closed
    repeated = foldaway("trial", "create", plan, env=admin(server)).stdout
    assert "exists already and is closed" in repeated
    assert "New tokens beside the old ones" in " ".join(repeated.split())
    assert max(map(len, repeated.splitlines())) <= 80
    wrong = foldaway("send", "life", folder / "day1.parquet", code=1, env=as_read).stderr
    assert "This token does not allow that: this takes the trial's ingest token or an admin token." in wrong
    late = foldaway("send", "life", folder / "day1.parquet", env=as_ingest).stdout  # it has all of this already
    assert "2,000 were there already" in late
    plan_file(folder, "empty")
    register(server, folder / "empty.toml")
    assert "--without-effects" in foldaway("trial", "close", "empty", code=1, env=admin(server)).stderr
    closed = foldaway("trial", "close", "empty", "--without-effects", env=admin(server)).stdout
    assert "closed without effects" in closed


def test_producers_names_say_nothing_of_the_content(server: Served, folder: Path, tmp_path: Path) -> None:
    """The same content under another name, or by another sender, gives another name in the database."""
    as_ingest = register(server, plan_file(tmp_path, "named", cohort=10))["ingest"]
    content = (folder / "day2.parquet").read_bytes()
    for name in ("one.parquet", "two.parquet"):
        (tmp_path / name).write_bytes(content)
    for _ in range(2):  # the second time, everything is there already
        foldaway("send", "named", tmp_path / "*.parquet", env=as_ingest)
    status = json.loads(foldaway("trial", "status", "named", "--json", env=admin(server)).stdout)
    assert status["records"] + status["pending"] == 2_000
    foldaway("send", "named", tmp_path / "one.parquet", "--key", tmp_path / "other.key", env=as_ingest)
    with sqlite3.connect(server.data / "foldaway.db") as database:
        names = [name for (name,) in database.execute("select producer from foldaway_sequences where trial = 'named'")]
    assert len(set(names)) == 3
    digests = {hashlib.new(kind, content).hexdigest()[:32] for kind in ("blake2b", "blake2s", "sha256", "md5", "sha1")}
    assert not any(digest in name for digest in digests for name in names)


def test_semicolons_are_said_and_sent(server: Served, folder: Path, tmp_path: Path) -> None:
    as_ingest = register(server, plan_file(tmp_path, "semicolons"))["ingest"]
    table = pq.read_table(folder / "day2.parquet")
    pa.csv.write_csv(table, tmp_path / "excel.csv", pa.csv.WriteOptions(delimiter=";"))
    refused = foldaway("send", "semicolons", tmp_path / "excel.csv", code=1, env=as_ingest).stderr
    assert "excel.csv is separated by semicolons" in refused
    assert "--delimiter ';'" in refused
    sent = foldaway("send", "semicolons", tmp_path / "excel.csv", "--delimiter", ";", env=as_ingest).stdout
    assert "1,000 records sent" in sent


def test_a_remainder_is_said(server: Served, folder: Path, tmp_path: Path) -> None:
    register(server, plan_file(tmp_path, "rest", cohort=1500))
    sent = foldaway("send", "rest", folder / "day2.parquet", env=admin(server)).stdout
    assert "1,000 records wait on the server" in sent
    assert max(map(len, sent.splitlines())) <= 80
    closed = foldaway("trial", "close", "rest", "--without-effects", env=admin(server)).stdout
    assert "1,000 records were left out at the close" in closed
    assert max(map(len, closed.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["trial", "status", "unknown"], "there is no trial"),
        (["send", "unknown", "day1.parquet"], "there is no trial"),
        (["send", "wrong", "nothing.parquet"], "nothing.parquet"),
        (["send", "wrong", "-"], "standard input cannot be sent again"),
        (["send", "wrong", "faulty.ndjson"], "1 of 2 records are faulty"),
        (["send", "wrong", "faulty.csv"], "faulty.csv, first in line 3: "),
        (["send", "wrong", "ragged.ndjson"], "1 lines that are not records"),
        (["trial", "create", "nothing.toml"], "nothing.toml"),
        (["trial", "list", "--server", "localhost"], "begins with http"),
        (["trial", "list", "--server", "http://[::"], "cannot be used"),
        (["trial", "list", "--ca", "nothing.pem"], "cannot be used"),
        (["trial", "list", "--token", "fa_x"], "token is needed: this takes the trial's read token or an admin token."),
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
    done = foldaway("trial", "list", code=2, env={"FOLDAWAY_SERVER": "", "FOLDAWAY_TOKEN": ""})
    assert "--server" in done.stderr
    assert "FOLDAWAY_SERVER" in done.stderr
    assert max(map(len, done.stderr.splitlines())) <= 80


@pytest.mark.parametrize("words", [["serve"], ["send"], ["rotate"], ["trial"], ["trial", "create"]])
def test_help_fits(words: list[str]) -> None:
    done = foldaway(*words, "--help")
    assert max(map(len, done.stdout.splitlines())) <= 80


BIG = 400_000


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of many batches."""
    path = tmp_path_factory.mktemp("big") / "big.csv"
    part = pa.Table.from_batches(list(checkout(20_000, seed=6)))

    with path.open("wb") as file:
        for i in range(BIG // 20_000):
            options = pa.csv.WriteOptions(include_header=i == 0)
            pa.csv.write_csv(part, file, options)
    return path


def test_sending_goes_on_where_it_was_killed(server: Served, folder: Path, big: Path) -> None:
    as_ingest = register(server, plan_file(folder, "killed", cohort=1000))["ingest"]

    def there() -> int:
        return int(server.ask("GET", "/v1/trials/killed").json()["records"])

    words = [sys.executable, "-m", "foldaway", "send", "killed", str(big)]
    for least in (1, 100_000):
        sending = subprocess.Popen(words, env={**os.environ, **as_ingest}, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while there() < least and sending.poll() is None:
            assert time.monotonic() < deadline
        sending.kill()
        sending.wait()
    middle = there()
    assert 0 < middle < BIG, "it was not killed in the middle"
    done = foldaway("send", "killed", big, env=as_ingest)
    sent, known = re.match(r"([\d,]+) records sent\. ([\d,]+) were there already", done.stdout).groups()  # type: ignore[union-attr]
    assert int(sent.replace(",", "")) + int(known.replace(",", "")) == BIG
    assert int(known.replace(",", "")) >= middle
    status = server.ask("GET", "/v1/trials/killed").json()
    assert status["records"] + status["pending"] == BIG


def test_progress_at_a_terminal_and_control_c(server: Served, folder: Path, big: Path) -> None:
    as_ingest = register(server, plan_file(folder, "watched", cohort=1000))["ingest"]
    control, terminal = pty.openpty()
    words = [sys.executable, "-m", "foldaway", "send", "watched", str(big)]
    env = {**os.environ, **as_ingest, "TERM": "xterm", "COLUMNS": "80"}
    sending = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=terminal, env=env)
    os.close(terminal)
    shown = b""
    stopped = False
    while True:
        try:
            shown += os.read(control, 4096)
        except OSError:  # the other end is closed
            break
        if b"sending big.csv" in shown and not stopped:
            sending.send_signal(signal.SIGINT)
            stopped = True
    os.close(control)
    sending.communicate(timeout=60)
    assert stopped, shown
    assert sending.returncode == 130
    assert b"goes on from what the server has" in shown
    assert b"Traceback" not in shown


def test_rotate_changes_the_key_and_loses_nothing(tmp_path: Path, folder: Path, served_from: Nursery) -> None:
    server = Served(tmp_path, served_from, measured=True)
    with server:
        envs = register(server, plan_file(tmp_path, "kept"))
        foldaway("send", "kept", folder / "day1.parquet", env=envs["ingest"])
    key = tmp_path / "key"
    key.write_text(bytes(range(32)).hex() + "\n")
    key.chmod(0o600)
    done = foldaway("rotate", "--data", server.data, "--key-file", key)
    assert "new key" in done.stdout
    assert bytes(range(32)).hex() not in key.read_text()
    server._arguments += ["--key-file", str(key)]
    with server:
        assert "2,000" in foldaway("trial", "status", "kept", env=envs["read"]).stdout
    assert foldaway("rotate", code=1).stderr.startswith("error: say where")


def test_serve_as_anybody_would(tmp_path: Path) -> None:
    """In its own process from beginning to end: hardened, a key made beside the data, stopped by control-C."""
    words = [sys.executable, "-m", "foldaway", "serve", "--data", str(tmp_path / "trials"), "--port", "0"]
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        serving = subprocess.Popen(words, stdout=out, stderr=err)
    try:
        said = eventually(
            lambda: re.search(
                r"serves at (http://127.0.0.1:\d+)\nadmin token, shown this once: (fa_\S+)\n",
                (tmp_path / "out").read_text(),
            ),
            90,
        )
        export = "Export them as FOLDAWAY_SERVER and FOLDAWAY_TOKEN for the other commands.\n"
        assert eventually(lambda: (tmp_path / "out").read_text().endswith(export) or None)
        exported = {"FOLDAWAY_SERVER": said[1], "FOLDAWAY_TOKEN": said[2]}
        assert "There are no trials yet" in foldaway("trial", "list", env=exported).stdout
        assert (tmp_path / "trials").stat().st_mode & 0o777 == 0o700
        assert (tmp_path / "trials" / "master.key").stat().st_mode & 0o777 == 0o600
        time.sleep(0.2)
        serving.send_signal(signal.SIGINT)
        assert serving.wait(30) == 0
    finally:
        serving.kill()
    log = (tmp_path / "err").read_text()
    assert json.loads(log.splitlines()[-1])["event"] == "stopped"
    assert said[2] not in log


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("litestar", ["serve", "--data", "x"]),
        ("sqlalchemy", ["rotate", "--data", "x"]),
        ("httpx", ["trial", "list", "--server", "http://x", "--token", "x"]),
    ],
)
def test_without_the_extra_it_says_what_to_install(missing: str, words: list[str], tmp_path: Path) -> None:
    program = (
        f"import sys; sys.modules[{missing!r}] = None; sys.argv[0] = 'foldaway'; from foldaway.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == (
        f"error: {missing} is not installed: pip install 'foldaway[serve]', or '.[serve]' in a checkout.\n"
    )
