"""Files to a server: resumable, and under names that say nothing."""

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
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from commands import foldaway
from foldaway.inference.rounding import round_count
from foldaway.simulation.datasets import checkout
from registered import admin, plan_file, register
from served import Served
from sizes import mostly_slow


def test_producers_names_say_nothing_of_the_content(server: Served, folder: Path, tmp_path: Path) -> None:
    """The same content under another name, or by another sender, gives another name in the database."""
    as_ingest = register(server, plan_file(tmp_path, "named", cohort=10))["ingest"]
    content = (folder / "day2.parquet").read_bytes()
    for name in ("one.parquet", "two.parquet"):
        (tmp_path / name).write_bytes(content)
    for _ in range(2):  # the second time, everything is there already
        foldaway("send", "named", tmp_path / "*.parquet", env=as_ingest)
    status = json.loads(foldaway("trial", "status", "named", "--json", env=admin(server)).stdout)
    assert status["records"] == 2_000
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
    refused = foldaway("send", "semicolons", tmp_path / "excel.csv", "--delimiter", ",", code=1, env=as_ingest).stderr
    assert "excel.csv is separated by semicolons" in refused
    sent = foldaway("send", "semicolons", tmp_path / "excel.csv", env=as_ingest).stdout
    assert "1,000 records sent" in sent


@pytest.mark.parametrize("exact", mostly_slow([False, True], True))
def test_less_than_a_cohort_is_said_and_told_to_its_admin_alone(
    server: Served, folder: Path, tmp_path: Path, exact: bool
) -> None:
    name = f"rest-{exact}"
    register(server, plan_file(tmp_path, name, cohort=1500))
    sent = foldaway("send", name, folder / "day2.parquet", env=admin(server)).stdout
    assert "records are pending" in sent
    assert max(map(len, sent.splitlines())) <= 80
    assert "--without-effects" in foldaway("end", name, "--yes", code=1, env=admin(server)).stderr
    words = ["end", name, "--yes", "--without-effects", *(["--exact"] if exact else [])]
    ended = foldaway(*words, env=admin(server)).stdout
    assert (f"{name}: 1,000 records" if exact else "ended without effects: too few records had arrived.") in ended
    assert max(map(len, ended.splitlines())) <= 80
    assert "ended without effects" in foldaway("effects", name, env=admin(server)).stdout
    again = " ".join(foldaway("send", name, folder / "day2.parquet", env=admin(server)).stdout.split())
    assert again.startswith(f"0 records sent. {name} has ended. 1,000 records of these files came before that; those")


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


@pytest.mark.once
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
    assert round_count(int(known.replace(",", ""))) >= middle
    ended = server.ask("POST", "/v1/trials/killed/end", json={"exact": True}).json()
    assert sum(ended["effects"]["counts"].values()) == BIG


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
        except OSError:  # the other end is ended
            break
        if b"sending big.csv" in shown and not stopped:
            sending.send_signal(signal.SIGINT)
            stopped = True
    os.close(control)
    sending.communicate(timeout=60)
    assert stopped, shown
    assert sending.returncode == 130
    assert b"resume after what the server has" in shown
    assert b"Traceback" not in shown
