"""How many rows were new is counted, in every database."""

from __future__ import annotations

from pathlib import Path

from foldaway.service.database.databases import postgres_engine, sqlite_engine
from foldaway.service.database.tables import NUMBERS, insert_new
from stores import PLAN, Place


def test_new_rows_are_counted(place: Place) -> None:
    with_trial = place.open()
    with_trial.create_trial(PLAN, bytes(16))
    with_trial.close()
    engine = sqlite_engine(Path(place.where) / "foldaway.db") if place.server is None else postgres_engine(place.where)
    rows = [{"trial": PLAN.name, "number": bytes([i]) * 16, "used": False, "arm": None} for i in range(5)]
    with engine.begin() as connection:
        assert [insert_new(connection, NUMBERS, some) for some in (rows[:1], rows[:1], rows[:3], rows)] == [1, 0, 2, 2]
    engine.dispose()
