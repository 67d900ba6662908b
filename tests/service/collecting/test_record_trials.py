"""Bodies that have come together: each gets its own answer, in the order in which they came."""

from __future__ import annotations

import msgspec

from foldaway.service.collecting.numbers import Numbers
from foldaway.service.collecting.record_inbox import Receipt
from foldaway.service.collecting.record_trials import Sent
from foldaway.service.collecting.service import Service
from foldaway.sources.formats.body import JSON, Limits
from stores import PLAN, Place


def test_a_producers_batches_are_folded_in_their_order_however_they_are_decoded(place: Place) -> None:
    """Small ones are decoded together, and others, such as one with a byte order mark, by themselves."""
    store = place.open()
    store.create_trial(PLAN, None)
    service = Service(store, "main", Limits())
    record = {PLAN.arm: next(iter(PLAN.arms)), **dict.fromkeys((*PLAN.regressors[1:], *PLAN.values[0].columns), 1.0)}
    sizes = (300, 2, 2, 1)
    lot = []
    for number, size in enumerate(sizes, 1):
        body = msgspec.json.encode([{**record, PLAN.unit or "": f"{number}-{i}"} for i in range(size)])
        mark = b"\xef\xbb\xbf" if number == 3 else b""
        lot.append((bytearray(mark + body), Sent(JSON, None, Numbers("till", number, number))))
    receipts = service.records.receive(PLAN.name, lot)
    assert [receipt.folded for receipt in receipts if isinstance(receipt, Receipt)] == list(sizes)
