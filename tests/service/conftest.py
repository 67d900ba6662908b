"""A place for a store, once in SQLite and once in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from postgres import Postgres
from stores import Place


@pytest.fixture
def folder(tmp_path: Path) -> Place:
    return Place(str(tmp_path / "trials"))


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
