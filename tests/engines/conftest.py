"""Engines for the tests of this room, started once for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import sparks


@pytest.fixture(scope="session")
def _spark_is_removed() -> Iterator[None]:
    yield
    sparks.remove()


@pytest.fixture
def session(_spark_is_removed: None) -> Iterator[Any]:
    """A Spark session; streams that a test leaves running end with it."""
    session = sparks.session()
    yield session
    sparks.stop_streams(session)


@pytest.fixture
def encrypted_session(_spark_is_removed: None) -> Any:
    """A Spark session that encrypts what it writes to its disks."""
    return sparks.session(encrypted=True)
