"""A database that an earlier server left, with trials open, upgraded and gone on with: nothing is doubled or lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import sqlalchemy as sa

from foldaway.federated.coordinator.ending import EndRequest
from foldaway.federated.messages import DeviceMoments, GroupSums, encoded
from foldaway.service.collecting.service import Service
from foldaway.service.database import migrations
from foldaway.service.database.databases import postgres_engine, sqlite_engine, writing
from foldaway.service.database.migrations import migrate
from foldaway.service.database.tables import Part
from foldaway.service.keys.vault import version_of
from foldaway.sources.formats.body import Limits
from open_trials import FILE, MODES, revised, rows, send
from stores import Place

pytestmark = pytest.mark.usefixtures("exact_counts")


@pytest.fixture
def left(place: Place) -> dict[str, Any]:
    """What the earlier server left, in the tables that it knew; see tests/open_trials.py."""
    found: dict[str, Any] = json.loads(FILE.read_text())
    files: dict[Part, str] = {"trials": "foldaway.db", "keys": "keys.db"}
    for part, file in files.items():
        engine = postgres_engine(place.where) if place.server else sqlite_engine(Path(place.where) / file)
        with writing(engine).begin() as connection:
            migrate(connection, part, "0001")
            tables = sa.MetaData()
            tables.reflect(connection, only=list(found[part]))
            for table in tables.sorted_tables:
                for row in found[part][table.name]:
                    sealed = {key: bytes.fromhex(*value) for key, value in row.items() if isinstance(value, list)}
                    flags = {key: bool(row[key]) for key in ("used", "revoked") if key in row}
                    connection.execute(table.insert().values({**row, **sealed, **flags}))
        engine.dispose()
    return found


def in_json(mode: str, message: bytes) -> bytes:
    """A device's report as its app sends it once it is upgraded as well: the same number, in today's form."""
    kind = {"sums": GroupSums, "one-message": DeviceMoments}[mode]
    return encoded(kind(*msgspec.msgpack.decode(message)))


def test_open_trials_go_on_after_an_upgrade(
    place: Place, left: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "REVISIONS", revised(tmp_path / "revisions"))  # there is always a change to come
    service = Service(place.open(), "main", Limits())
    assert place.sql("SELECT version_num FROM foldaway_trials_version") == [("next",)]
    # What was sealed under the master key alone is so no more.
    for table, column, file in (("shards", "state", "foldaway.db"), ("keys", "key", "keys.db")):
        sealed = place.sql(f"SELECT {column} FROM foldaway_{table} WHERE {column} IS NOT NULL", file=file)
        assert sealed
        assert all(version_of(bytes(each)) for (each,) in sealed)
    assert {row.name: row.status for row in service.store.trials()} == dict.fromkeys(["records", *MODES], "open")

    assert send(service, 3).durable == 3  # it was counted before
    for batch in (4, 5):
        assert send(service, batch).durable == batch
    effect = json.loads(bytes(service.effects("records", exact=True).effects))["effects"][0]
    kept = [row for batch in range(1, 6) for row in rows(batch)]
    means = {arm: np.mean([row["y"] for row in kept if row["group"] == arm]) for arm in "ab"}
    assert effect["n"] == len(kept)
    assert effect["estimate"] == pytest.approx(means["b"] - means["a"], rel=1e-12)

    for mode in MODES:
        reports = [in_json(mode, bytes.fromhex(report)) for report in left["reports"][mode]]
        outcomes = service.devices.receive(mode, "reports", reports)
        assert [outcome.repeated for outcome in outcomes] == [True] * 4 + [False] * 2  # type: ignore[union-attr]
        # Device j has 2^j records, so this is each of the six once. Their last two wait for a cohort, or for the end.
        assert service.end(mode, EndRequest(without_effects=True)).records == 2**6 - 1
    service.end("records")
    assert {row.status for row in service.store.trials()} == {"ended"}
    service.store.close()
