"""What a server's trial proves: its ledger, in one order for all servers, and the certificate after the end."""

from __future__ import annotations

import pyarrow as pa
import pytest

from batches import receive
from evidence_of import PLAN, records
from foldaway.errors import IngestError
from foldaway.evidence.ledger import ANSWERED, AUDITED, ENDED, KEY_DESTROYED, KEY_IN_USE, REGISTERED, WRITTEN
from foldaway.evidence.verifying import verify
from foldaway.federated.coordinator.ending import EndRequest
from foldaway.service.collecting.service import Service
from foldaway.service.keys.vault import Vault
from foldaway.sources.formats.body import Decoded, Limits
from plans import replaced
from stores import VAULT, Place

NAME = PLAN.name


def fold(service: Service, start: int, n: int) -> None:
    receive(service.records.collector(NAME), Decoded(pa.table(records(start, n))), None, None)
    service.tick()


def kinds(service: Service) -> list[str]:
    return [entry.kind for entry in service.store.ledger.read(NAME)]


def test_servers_share_a_ledger_and_any_of_them_certifies_the_trial_that_has_ended(place: Place) -> None:
    one, two = (Service(place.open(), shard, Limits()) for shard in ("one", "two"))
    created = one.create(PLAN.canonical().decode())
    assert kinds(one) == [REGISTERED, KEY_IN_USE]
    assert two.create(PLAN.canonical().decode()).ledger_head == created.ledger_head  # registered once
    with pytest.raises(IngestError, match="is open"):
        one.certificate(NAME)
    fold(one, 0, 300)
    fold(two, 300, 700)
    one.store.rotate(Vault([bytes(32)]).over(VAULT))  # the signing key is sealed anew, and stays the same
    two.store.rotate(Vault([bytes(32)]).over(VAULT))
    one.end(NAME)
    assert kinds(two) == [
        REGISTERED, KEY_IN_USE, WRITTEN, ANSWERED, WRITTEN, ANSWERED, AUDITED, ENDED, KEY_DESTROYED,
    ]  # fmt: skip
    data = two.certificate(NAME)
    checked = verify(data, [created.ledger_head], one.store.ledger.signer().key)
    assert checked.faults == []
    assert two.status(NAME).ledger_head == two.store.ledger.read(NAME).head
    assert verify(place_again(place).certificate(NAME)).faults == []
    for service in (one, two):
        service.store.close()


def place_again(place: Place) -> Service:
    return Service(place.open(Vault([bytes(32)])), "three", Limits())


@pytest.mark.once
def test_a_key_that_a_crash_has_left_is_destroyed_and_noted_before_the_certificate(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(place.open(), "main", Limits())
    service.create(PLAN.canonical().decode())
    fold(service, 0, 400)
    monkeypatch.setattr(service.store._keys, "destroy", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        service.end(NAME)
    monkeypatch.undo()
    assert kinds(service)[-1] == ENDED
    assert verify(service.certificate(NAME)).faults == []
    assert kinds(service)[-1] == KEY_DESTROYED
    service.store.close()


def test_an_open_trial_that_is_older_than_ledgers_begins_one_that_says_so(place: Place) -> None:
    service = Service(place.open(), "main", Limits())
    service.create(PLAN.canonical().decode())
    receive(service.records.collector(NAME), Decoded(pa.table(records(0, 200))), None, None)
    place.sql("DELETE FROM foldaway_ledger")  # as an upgrade finds it
    fold(service, 200, 300)
    service.end(NAME)
    assert "The plan was registered after the first record." in verify(service.certificate(NAME)).faults
    service.store.close()


def test_a_trial_without_effects_and_one_without_a_key_are_certified_too(folder: Place) -> None:
    service = Service(folder.open(), "main", Limits())
    service.create(PLAN.canonical().decode())
    service.end(NAME, EndRequest(without_effects=True))
    assert verify(service.certificate(NAME)).faults == []
    service.create(replaced(PLAN, name="bare", unit=None).canonical().decode())
    service.end("bare", EndRequest(without_effects=True))
    checked = verify(service.certificate("bare"))
    assert checked.faults == []
    assert any("the trial had none of its own" in sentence for sentence in checked.unproven)
    service.store.close()
