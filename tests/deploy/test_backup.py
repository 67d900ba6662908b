"""Backup and restore: what was acknowledged since is missed loudly, and never counted twice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from foldaway.keeping.user_keys import state_home
from postgres import Postgres, programs
from proxies import DEPLOY
from served import Served, eventually, rows
from servers import KEY, Nursery

SIZE = 40


class Kept:
    """A server and the place of its trials, which can be emptied."""

    def __init__(self, folder: Path, nursery: Nursery, postgres: Postgres | None) -> None:
        self._postgres = postgres
        database = None if postgres is None else postgres.database()
        self.server = Served(folder, nursery, database=database)
        self.place = database or str(self.server.data)
        self.versions = state_home() / "versions" / f"{self.place.rsplit('/', 1)[1]}.keys"

    def empty(self) -> None:
        if self._postgres is None:
            shutil.rmtree(self.place)
        else:
            self.versions.unlink()
            self._postgres.execute("DROP SCHEMA public CASCADE", self.place.rsplit("/", 1)[1])
            self._postgres.execute("CREATE SCHEMA public", self.place.rsplit("/", 1)[1])

    def send(self, sequence: int) -> httpx.Response:
        return self.server.ask(
            "POST",
            "/v1/trials/kept/records",
            json=rows(SIZE, SIZE * sequence),
            headers={"Foldaway-Producer": "till", "Foldaway-Sequence": str(sequence)},
        )


@pytest.fixture(params=["folder", "database"])
def kept(request: pytest.FixtureRequest, served_from: Nursery, tmp_path: Path) -> Iterator[Kept]:
    postgres = request.getfixturevalue("postgres") if request.param == "database" else None
    kept = Kept(tmp_path / "server", served_from, postgres)
    with kept.server:
        yield kept
    if postgres is not None:
        postgres.drop(kept.place)


def script(name: str, *words: object) -> subprocess.CompletedProcess[str]:
    folder = programs()
    path = os.pathsep.join([*([] if folder is None else [str(folder)]), os.environ["PATH"]])
    command = [str(DEPLOY / name), *map(str, words)]
    environment = {**os.environ, "PATH": path, "PYTHON": sys.executable}
    return subprocess.run(command, env=environment, capture_output=True, text=True)


@pytest.mark.once
def test_nothing_acknowledged_after_the_backup_is_counted_twice(kept: Kept, tmp_path: Path) -> None:
    server = kept.server
    server.create("kept")
    server.create("later-ended")
    for sequence in (1, 2, 3):
        answer = kept.send(sequence)
    assert answer.json()["durable"] == 3
    backup = tmp_path / "backup"
    done = script("backup.sh", kept.place, backup)
    assert done.returncode == 0, done.stderr
    copied = b"".join(file.read_bytes() for file in backup.rglob("*"))
    assert bytes.fromhex(KEY) not in copied
    assert KEY.encode() not in copied
    assert {file.stat().st_mode & 0o077 for file in [backup, *backup.rglob("*")]} == {0}
    for sequence in (4, 5):
        answer = kept.send(sequence)
    assert answer.json()["durable"] == 5
    assert server.ask("POST", "/v1/trials/later-ended/end", json={"without_effects": True}).status_code == 200

    server.stop()
    refused = script("restore.sh", backup, kept.place)
    assert refused.returncode != 0
    assert "already: " in refused.stderr
    kept.empty()
    done = script("restore.sh", backup, kept.place)
    assert done.returncode == 0, done.stderr
    server.start()

    # A producer that goes on is told what is missing; one that repeats what was in the backup adds nothing.
    gap = kept.send(6)
    assert (gap.status_code, gap.json()["expected"]) == (409, 4)
    assert kept.send(3).json()["durable"] == 3
    for sequence in (4, 5, 4, 5, 6):
        answer = kept.send(sequence)
        assert answer.status_code == 200, answer.text
    assert status(server, "later-ended")["status"] == "open"  # its end is forgotten as well
    ended = server.ask("POST", "/v1/trials/kept/end")
    assert ended.status_code == 200, ended.text
    assert {row["n"] for row in ended.json()["effects"]["effects"]} == {6 * SIZE}


def test_what_cannot_be_backed_up_or_restored_leaves_nothing_behind(tmp_path: Path) -> None:
    unreachable = "postgresql://nobody@127.0.0.1:1/none"
    for name, words, sentence in (
        ("backup.sh", ("missing", "backup"), "There are no trials in"),
        ("backup.sh", (unreachable, "backup"), "Nothing was backed up."),
        ("restore.sh", ("missing", "target"), "There is no backup of a folder in"),
        ("restore.sh", ("missing", unreachable), "There is no backup of a database in"),
        ("restore.sh", ("missing",), "Name the folder of the backup, then the folder or the empty database"),
    ):
        done = script(name, *(word if "://" in word else tmp_path / word for word in words))
        assert done.returncode != 0
        assert sentence in done.stderr
        assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def status(server: Served, name: str) -> dict[str, Any]:
    found: dict[str, Any] = server.ask("GET", f"/v1/trials/{name}").json()
    return found


def test_a_backup_made_while_records_come_has_the_keys_of_its_states(kept: Kept, tmp_path: Path) -> None:
    server, over, sent = kept.server, threading.Event(), [0]
    server.create("kept")

    def send_on() -> None:
        while not over.is_set():
            if kept.send(sent[0] + 1).status_code == 200:
                sent[0] += 1

    producer = threading.Thread(target=send_on)
    producer.start()
    try:
        for turn in range(3):
            before = sent[0]
            done = script("backup.sh", kept.place, tmp_path / f"backup-{turn}")
            assert (done.returncode, done.stderr) == (0, "")
            eventually(lambda: sent[0] > before)  # noqa: B023
    finally:
        over.set()
        producer.join()
    for turn in range(3):
        server.stop()
        kept.empty()
        done = script("restore.sh", tmp_path / f"backup-{turn}", kept.place)
        assert done.returncode == 0, done.stderr
        server.start()
        expected = kept.send(1000).json()["expected"]  # the gap tells how far the backup came
        assert kept.send(expected).json()["durable"] == expected
    ended = server.ask("POST", "/v1/trials/kept/end", json={"exact": True}).json()
    assert ended["effects"]["effects"][0]["n"] == expected * SIZE
