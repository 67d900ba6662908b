"""Messages in hand are bounded, by what a plan's messages can be and by the bytes of all that wait."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from clustered import answer, devices_of, federated, moments, share_of
from foldaway.errors import IngestError
from foldaway.federated.messages import MOST_BYTES, Message, Received, encoded
from foldaway.federated.modes import most_bytes
from foldaway.federated.replies.published import Published
from foldaway.service.http import device_routes
from foldaway.service.http.device_routes import Gathering
from trials import make_trial


@pytest.mark.parametrize("leverage", [None, "CR3"])
@pytest.mark.parametrize("covariates", [0, 1, 5])
def test_every_message_of_a_plan_fits_and_little_more_does(covariates: int, leverage: str | None) -> None:
    plan, rows = make_trial(3, n=400, units=True, covariates=covariates)
    plan = federated(plan, "scores", leverage=leverage)
    devices = devices_of(plan, rows)
    factors = [moments(kept) for kept in devices]
    share = share_of(plan, factors)
    published = Published.of(share.trial)
    sent: list[Message] = [*factors, answer(plan, published, devices[0])]
    longest = max(len(encoded(message)) for message in sent)
    assert longest <= most_bytes(plan) < 2 * longest + 200 < MOST_BYTES


class Busy:
    """A thread that folds once it is let."""

    def __init__(self) -> None:
        self.service = SimpleNamespace(devices=SimpleNamespace(receive=None))
        self.free = asyncio.Event()

    async def run(self, _: Any, name: str, kind: str, bodies: list[bytearray]) -> list[Received]:
        await self.free.wait()
        return [Received(repeated=False, durable=True)] * len(bodies)


def test_the_bytes_in_hand_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_routes, "_MOST_BYTES_WAITING", 100)

    async def scene() -> None:
        work = Busy()
        gathered = Gathering(work)  # type: ignore[arg-type]
        taken = [asyncio.create_task(gathered.take("t", "reports", bytearray(60))) for _ in range(2)]
        await asyncio.sleep(0.01)
        body = bytearray(b"secret")
        with pytest.raises(IngestError) as refused:
            await gathered.take("t", "reports", body)
        assert refused.value.status == 503
        assert b"secret" not in body
        with pytest.raises(IngestError):
            gathered.check_room()
        work.free.set()
        assert len(await asyncio.gather(*taken)) == 2
        gathered.check_room()
        assert (await gathered.take("t", "reports", bytearray(60))).durable

    asyncio.run(scene())
