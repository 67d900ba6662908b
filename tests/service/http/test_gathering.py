"""Messages in hand are bounded, by what a plan's messages can be and by the bytes of all that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from clustered import answer, devices_of, federated, moments, share_of
from foldaway.errors import IngestError
from foldaway.federated.messages import MOST_BYTES, DeviceMessage, Received, encoded
from foldaway.federated.modes import most_bytes
from foldaway.federated.replies.published import Published
from foldaway.service.http import gathering
from foldaway.service.http.gathering import Gathering
from trials import make_trial


@pytest.mark.parametrize("covariates", [0, 1, 5])
def test_every_message_of_a_plan_fits_and_little_more_does(covariates: int) -> None:
    plan, rows = make_trial(3, n=400, units=True, covariates=covariates)
    plan = federated(plan, "scores")
    devices = devices_of(plan, rows)
    factors = [moments(kept) for kept in devices]
    share = share_of(plan, factors)
    published = Published.of(share.trial)
    sent: list[DeviceMessage] = [*factors, answer(plan, published, devices[0])]
    longest = max(len(encoded(message)) for message in sent)
    assert longest <= most_bytes(plan) < 2 * longest + 200 < MOST_BYTES


class Busy:
    """A thread that folds once it is let."""

    def __init__(self) -> None:
        self.free = asyncio.Event()

    async def run(self, task: Callable[..., Any], *arguments: Any) -> Any:
        await self.free.wait()
        return task(*arguments)


def received(_: tuple[str], lot: Sequence[tuple[bytearray, None]]) -> list[Received]:
    return [Received(repeated=False, durable=True)] * len(lot)


def test_the_bytes_in_hand_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "_MOST_BYTES_WAITING", 100)

    async def scene() -> None:
        work = Busy()
        gathered: Gathering[tuple[str], None, Received] = Gathering(work, received)  # type: ignore[arg-type]
        bodies = [bytearray(60), bytearray(60)]
        taken = [asyncio.create_task(gathered.take(("t",), body, None)) for body in bodies]
        await asyncio.sleep(0.01)
        with pytest.raises(IngestError):
            gathered.check_room()
        late = bytearray(b"secret")
        with pytest.raises(IngestError) as refused:
            await gathered.take(("t",), late, None)
        assert (refused.value.status, bytes(late)) == (503, b"")
        taken[1].cancel()  # the sender goes away
        work.free.set()
        assert (await taken[0]).durable
        assert bodies == [b"", b""]
        gathered.check_room()
        assert (await gathered.take(("t",), bytearray(60), None)).durable

    asyncio.run(scene())
