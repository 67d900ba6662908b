"""From a folder to PostgreSQL: nothing lost, nothing twice, whatever breaks off; and the folder is served no more."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import foldaway.service.moving as moving
from batches import send
from foldaway.errors import FoldawayError, StoreError
from foldaway.service.collecting.numbers import Numbers
from foldaway.service.collecting.record_trials import Sent
from foldaway.service.collecting.service import Service
from foldaway.service.database.store import Store
from foldaway.service.keys.tokens import Wanted, id_of, verify
from foldaway.service.server import Settings, open_store
from foldaway.sources.formats.body import JSON, Limits
from open_trials import PLAN, rows
from stores import VAULT, Place


class Crash(BaseException):
    """The process is gone."""


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDAWAY_KEY", bytes(range(32)).hex())


def sent(service: Service, trial: str, batch: int) -> Any:
    body = json.dumps(rows(batch)).encode()
    return send(service, trial, body, Sent(JSON, None, Numbers("till", batch, batch)))


def filled(folder: Place) -> tuple[dict[str, Any], str]:
    """A folder with an open trial and an ended one; what it says of them, and a token for the open one."""
    store = folder.open()
    service = Service(store, "main", Limits())
    for name in ("records", "ended"):
        service.create(json.dumps(PLAN | {"name": name}), team="red")
        for batch in (1, 2, 3):
            sent(service, name, batch)
    service.end("ended")
    _, text = store.tokens.issue(Wanted("read", "records", label="wall", expires_in=10**6))
    found = said(service)
    store.close()
    return found, text


def said(service: Service) -> dict[str, Any]:
    """What a server says of its trials; the open one's key must be there, or units would be counted anew."""
    store = service.store
    certificate = json.loads(service.certificate("ended"))["certificate"]
    del certificate["issued"]
    return {
        "trials": [replace(row, exact_answers=0) for row in store.trials()],
        "tokens": store.tokens.all(),
        "ledgers": {name: store.ledger.read(name).lines for name in ("records", "ended")},
        "signer": store.ledger.signer().key,
        "key": store.trial_key("records"),
        "exact": bytes(service.effects("records", exact=True).effects),
        "final": bytes(service.effects("ended").effects),
        "certificate": certificate,
        "sequences": store.shards.sequences("records"),
    }


def assert_moved(before: dict[str, Any], text: str, folder: Place, database: Place) -> None:
    store = database.open()
    service = Service(store, "other", Limits())
    after = said(service)
    assert after == before
    assert verify(text, store.tokens.find(id_of(text) or ""))
    # The producer goes on where it was: a repetition is known, the next batch counts.
    assert sent(service, "records", 3).repeated
    assert sent(service, "records", 4).durable == 4
    store.close()
    with pytest.raises(StoreError, match=r"were moved to postgresql://127\.0\.0\.1:\d+/test_\w+: use that database"):
        open_store(Settings(data=Path(folder.where)))
    assert sorted(file.name for file in Path(folder.where).iterdir()) == ["moved"]


def test_all_goes_along_and_the_folder_is_served_no_more(folder: Place, database: Place) -> None:
    before, text = filled(folder)
    settings = Settings(data=Path(folder.where))
    moved = moving.move(settings, database.where)
    assert (moved.trials, moved.tokens) == (2, len(before["tokens"]))
    assert_moved(before, text, folder, database)
    assert moving.move(settings, database.where).trials is None  # once more: there is nothing left to do
    with pytest.raises(StoreError, match="were moved to"):
        moving.move(settings, f"{database.where}_elsewhere")


@pytest.mark.parametrize("step", ["copy", "has_all_of", "write_mark", "_destroy"])
def test_a_move_that_is_killed_goes_on(
    folder: Place, database: Place, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    before, text = filled(folder)
    settings = Settings(data=Path(folder.where))

    def gone(*_: object, **about: object) -> None:
        if about.get("whole", True):
            raise Crash
        real(*_, **about)

    place: Any = Store if step == "has_all_of" else moving
    if step == "copy":
        import foldaway.service.database.store as place
    real: Callable[..., None] = getattr(place, step)
    with monkeypatch.context() as killed:
        killed.setattr(place, step, gone)
        killed.setattr(moving, "remove_mark", gone)  # a process that is gone tidies nothing up
        with pytest.raises(Crash):
            moving.move(settings, database.where)
    with pytest.raises(StoreError, match="broke off: repeat it" if step != "_destroy" else "were moved to"):
        open_store(settings)
    with pytest.raises(StoreError, match="were moved to"):
        moving.move(settings, f"{database.where}_elsewhere")
    moving.move(settings, database.where)
    assert_moved(before, text, folder, database)


def test_what_cannot_be_moved_stays_as_it_is(folder: Place, database: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    before, _ = filled(folder)
    settings = Settings(data=Path(folder.where))
    occupied = database.open()
    occupied.tokens.issue(Wanted("admin"))

    def broken(*_: object) -> None:
        raise StoreError("the database refused.")

    with pytest.raises(FoldawayError, match="something is in that database already"):
        moving.move(settings, database.where)
    versions = Path(folder.where, "version.keys")
    versions.rename(versions.with_name("elsewhere"))
    with pytest.raises(FoldawayError, match=r"version keys in another file \(--version-keys\), move that file there"):
        moving.move(settings, database.where)
    assert not versions.exists()
    versions.with_name("elsewhere").rename(versions)
    database.sql("DELETE FROM foldaway_tokens")
    monkeypatch.setattr("foldaway.service.database.store.copy", broken)
    with pytest.raises(FoldawayError, match="refused"):
        moving.move(settings, database.where)
    for wrong in (Settings(data=Path(folder.where) / "none"), Settings(database=database.where)):
        with pytest.raises(FoldawayError):
            moving.move(wrong, database.where)
    after = said(Service(Store.open(folder.where, VAULT), "main", Limits()))
    assert after == before
