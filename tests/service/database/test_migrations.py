"""The tables' revisions, on both databases: where they lead, what they leave alone, and who may not follow them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import get_args

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from foldaway.errors import StoreError
from foldaway.service.database import migrations
from foldaway.service.database.tables import ABOUT, Part
from open_trials import revised
from stores import PLAN, Place

NAME = PLAN.name


def version(place: Place) -> str:
    ((found,),) = place.sql("SELECT version_num FROM foldaway_trials_version")
    return str(found)


def test_the_revisions_lead_to_the_tables(place: Place) -> None:
    store = place.open()
    for part in get_args(Part):
        others = {name for other in ABOUT if other != part for name in ABOUT[other].tables}
        others |= {f"foldaway_{part}_version" for part in ABOUT}
        with store._engines[part].begin() as connection:
            context = MigrationContext.configure(
                connection,
                opts={
                    "include_name": lambda name, kind, _, others=others: kind != "table" or name not in others,
                    "compare_server_default": True,
                },
            )
            assert compare_metadata(context, ABOUT[part]) == []
            more = sa.MetaData()
            for table in ABOUT[part].sorted_tables:
                table.to_metadata(more).append_column(sa.Column("more", sa.Text))
            assert len(compare_metadata(context, more)) == len(more.tables)


def test_a_change_comes_to_open_trials_whole_or_not_at_all(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = place.open()
    store.create_trial(PLAN, None)
    store.shards.commit(NAME, "main", version=0, n=100, state=b"tallies", sequences={"p": (0, 1)})
    before = store.trial(NAME), store.shards.all(NAME), store.shards.sequences(NAME), version(place)

    monkeypatch.setattr(migrations, "REVISIONS", revised(tmp_path / "failing", "op.execute('SELECT nothing')"))
    with pytest.raises(StoreError):
        place.open()
    assert (store.trial(NAME), store.shards.all(NAME), store.shards.sequences(NAME), version(place)) == before

    monkeypatch.setattr(migrations, "REVISIONS", revised(tmp_path / "working"))
    faults: list[BaseException] = []

    def start() -> None:
        try:
            place.open().close()
        except BaseException as fault:
            faults.append(fault)

    servers = [threading.Thread(target=start) for _ in range(3)]
    for server in servers:
        server.start()
    for server in servers:
        server.join()
    assert faults == []
    assert version(place) == "next"
    assert place.sql("SELECT name, owner FROM foldaway_trials") == [(NAME, None)]
    # A server that has not been upgraded yet goes on, since nothing that it knows is gone.
    assert store.shards.commit(NAME, "main", version=1, n=200, state=b"more", sequences={"p": (1, 2)}) == 2
    store.close()


def test_tables_of_a_later_foldaway_are_left_alone(place: Place) -> None:
    place.open().close()
    place.sql("UPDATE foldaway_trials_version SET version_num = 'later'")
    with pytest.raises(StoreError, match="upgraded by a later foldaway"):
        place.open()
    place.sql("DROP TABLE foldaway_trials_version")
    with pytest.raises(StoreError, match="before its tables had versions"):
        place.open()
