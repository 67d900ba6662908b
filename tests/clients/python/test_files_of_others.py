"""A device's folder may be one in which an app keeps its own files: whatever the device does, they stay as they are."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import foldaway as fa
from devices import device_in
from foldaway.service.collecting.service import Service
from foldaway.service.database.store import Store
from foldaway.sources.formats.body import Limits
from foldaway_device.device import Device
from foldaway_device.folder import FolderStore
from in_process import DirectLink
from plans import SMALL
from postgres import quick_folder
from stores import VAULT

PLAN = fa.Plan(**SMALL, federated="one-message", privacy=fa.Privacy(cohort=1, smallest_cell=1, retention=1000.0))
SIXTY_DAYS = 60 * 86_400.0


@pytest.fixture
def link() -> Iterator[DirectLink]:
    with TemporaryDirectory(dir=quick_folder()) as folder:
        store = Store.open(folder, VAULT)
        service = Service(store, "main", Limits())
        service.create(PLAN.to_json())
        yield DirectLink(service.devices, PLAN)
        store.close()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The private folder of an app, with files that have not been changed for a long time."""
    home = tmp_path / "app"
    home.mkdir(mode=0o700)
    (home / "vault.sqlite").write_bytes(os.urandom(8192))  # as an encrypted database looks
    with closing(sqlite3.connect(home / f"{PLAN.name}.sqlite")) as database, database:
        database.execute("CREATE TABLE device (id INTEGER PRIMARY KEY, name TEXT)")
        database.execute("INSERT INTO device VALUES (1, 'the app''s own')")
    _write_ahead(home, tmp_path / "elsewhere")
    for name in ("vault.forgotten", f"{PLAN.name}.forgotten", f"{PLAN.name}.sqlite-journal", "notes.foldaway"):
        (home / name).write_bytes(b"the app's own")
    (home / ".foldaway-device").write_bytes(b"the app's own")  # the name of no trial
    (home / "old.foldaway-device").mkdir()
    for path in home.iterdir():
        os.utime(path, (time.time() - SIXTY_DAYS,) * 2)
    return home


def _write_ahead(home: Path, elsewhere: Path) -> None:
    """A database whose last change is in its log alone, as a killed app leaves it."""
    elsewhere.mkdir()
    with closing(sqlite3.connect(elsewhere / "messages.sqlite")) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE messages (text)")
        database.execute("INSERT INTO messages VALUES ('hello')")
        database.commit()
        for path in elsewhere.iterdir():
            shutil.copy(path, home)


def files(folder: Path) -> dict[str, tuple[bytes | None, float, int]]:
    """By name, what is in them, when they were changed, and who may read them."""
    return {
        path.name: (path.read_bytes() if path.is_file() else None, path.stat().st_mtime, path.stat().st_mode)
        for path in folder.iterdir()
    }


@pytest.mark.parametrize("end", ["reported", "forgotten", "expired", "damaged"])
def test_files_of_others_stay_as_they_are(
    end: str, home: Path, link: DirectLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = files(home)
    assert {"messages.sqlite-wal", "messages.sqlite-shm", "vault.sqlite", "small.sqlite"} < set(theirs)
    device = device_in(PLAN, None, link, FolderStore(home))
    device.record({"y": 12.5})
    if end == "reported":
        assert device.report().state == "counted"
    elif end == "forgotten":
        device.forget()
    elif end == "expired":
        later = time.time() + SIXTY_DAYS
        monkeypatch.setattr(time, "time", lambda: later)
    else:
        (home / "small.foldaway-device").write_bytes(b"something else" * 100)
        os.utime(home / "small.foldaway-device", (time.time() - SIXTY_DAYS,) * 2)
    again = Device.open(PLAN.canonical(), store=home)
    assert again.status.state == {"reported": "counted", "damaged": "forgotten"}.get(end, end)
    assert all(name in theirs or name.startswith("small.foldaway-") for name in files(home))
    assert {name: found for name, found in files(home).items() if name in theirs} == theirs
    with closing(sqlite3.connect(home / "messages.sqlite")) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert database.execute("SELECT text FROM messages").fetchall() == [("hello",)]
