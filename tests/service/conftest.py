"""A place for a store, once in SQLite and once in PostgreSQL."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest

from postgres import Postgres, quick_folder
from stores import Place


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
