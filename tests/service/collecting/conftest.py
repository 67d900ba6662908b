"""The same place for a store as in tests/service/database, which has the laws of both databases."""

from __future__ import annotations

import pytest

from sizes import mostly_slow
from stores import Place


@pytest.fixture(params=mostly_slow(["folder", "database"], "folder"))
def place(request: pytest.FixtureRequest) -> Place:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Place)
    return found
