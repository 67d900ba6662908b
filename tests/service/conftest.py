"""A place for a store, once in SQLite and once in PostgreSQL."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest

from foldaway.service.collecting.service import Service
from foldaway.service.database.store import Store
from foldaway.sources.formats.body import Limits
from postgres import Postgres, quick_folder
from stores import VAULT, Place


@pytest.fixture
def folder() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="fa-", dir=quick_folder()) as parent:
        yield Place(f"{parent}/trials")


@pytest.fixture
def database(postgres: Postgres) -> Iterator[Place]:
    address = postgres.database()
    yield Place(address, postgres)
    postgres.drop(address)


@pytest.fixture(params=["folder", "database"])
def place(request: pytest.FixtureRequest) -> Place:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Place)
    return found


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    """In memory where there is such a place, for tests that do not ask what a disk would lose."""
    with tempfile.TemporaryDirectory(dir=quick_folder()) as folder:
        store = Store.open(folder, VAULT)
        yield store
        store.close()


@pytest.fixture
def service(store: Store) -> Service:
    return Service(store, "main", Limits())


@pytest.fixture
def exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of records as they are, which nobody is told, to see who is counted."""
    for module in ("service", "record_trials", "device_trials", "device_endings"):
        monkeypatch.setattr(f"foldaway.service.collecting.{module}.round_count", int)
