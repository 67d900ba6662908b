"""The addresses of federated trials: what devices and sites send, and what they get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from litestar import Response, get, post
from litestar.params import HeaderParameter
from litestar.types import Receive

from foldaway.errors import IngestError
from foldaway.federated.messages import MEDIA_TYPE, Kind, PublishedCoefficients, Received
from foldaway.federated.modes import most_bytes
from foldaway.service.collecting.device_inbox import Outcome
from foldaway.service.http.access import Access, Name, sender
from foldaway.service.http.bodies import Asked, read_body, require_kind
from foldaway.service.http.desks import AtDesk, Desk
from foldaway.service.http.documents import MessageOperation, TalliesOperation, about
from foldaway.service.http.gathering import Gathering
from foldaway.sources.formats.body import wipe

NumberHeader = Annotated[
    str,
    HeaderParameter(
        name="Foldaway-Number", pattern="^[0-9a-f]{32}$", description="16 random bytes, for this message alone."
    ),
]

SiteHeader = Annotated[
    str | None,
    HeaderParameter(
        name="Foldaway-Site",
        pattern="^[0-9a-f]{32}$",
        description="16 random bytes that the site keeps; else the number.",
    ),
]

SendingHeader = Annotated[
    int,
    HeaderParameter(
        name="Foldaway-Sending",
        ge=1,
        le=1_000_000,
        description="How many times the site has sent, with this one, which takes the place of what it sent before.",
    ),
]

Messages = Gathering[tuple[str, Kind], None, Received]

# What the OpenAPI document calls each kind of message, and says of it.
_MESSAGES: dict[Kind, tuple[str, str]] = {
    "enrolments": ("V1TrialsNameEnrolmentsEnrol", "A device joins"),
    "moments": ("V1TrialsNameMomentsMoments", "Moments of a device's records, in mode scores"),
    "reports": ("V1TrialsNameReportsReport", "A device's one report"),
    "withdrawals": ("V1TrialsNameWithdrawalsWithdraw", "The same report, to be taken out again"),
}


class DeviceDesk(Desk):
    """Where devices' messages of one kind are handed in.

    Args:
        access: Who may come.
        patience: Seconds in which a message must arrive.
        kind: The kind.
        gathering: Brings messages of all kinds to the thread that folds.
    """

    def __init__(self, access: Access, patience: float, kind: Kind, gathering: Messages) -> None:
        self._access = access
        self._thread = access.thread
        self._devices = access.thread.service.devices
        self._patience = patience
        self._kind = kind
        self._gathering = gathering
        self._longest: dict[str, int] = {}

    async def take(self, scope: Any, receive: Receive) -> tuple[int, Received]:
        """Take a message."""
        await self._access.admit(scope, ("ingest",))
        sender(scope, federated=True)
        require_kind(scope, MEDIA_TYPE)
        self._gathering.check_room()
        name: str = scope["path_params"]["name"]
        too_long = IngestError(422, "the message is longer than any of this plan can be.")
        body = await read_body(scope, receive, await self._most(name), self._patience, too_long)
        with self._thread.forgetting():
            received = await self._gathering.take((name, self._kind), body, None)
        if name not in self._devices.uncounted:
            self._thread.metrics.message(self._kind)
        return 200, received

    async def _most(self, name: str) -> int:
        """How long a message of the trial's devices can be; a plan never changes."""
        if name not in self._longest:
            self._longest[name] = most_bytes(await self._thread.run(self._devices.plan, name))
        return self._longest[name]


def device_desks(access: Access, patience: float) -> dict[str, Desk]:
    """One for each kind of message."""

    def receive(key: tuple[str, Kind], lot: Sequence[tuple[bytearray, None]]) -> list[Outcome]:
        return access.thread.service.devices.receive(*key, [body for body, _ in lot])

    gathering = Gathering(access.thread, receive)
    return {kind: DeviceDesk(access, patience, kind, gathering) for kind in _MESSAGES}


def device_routes(access: Access, patience: float, desks: Mapping[str, Desk]) -> list[Any]:
    """The handlers."""
    thread, guard, for_sites = access.thread, access.needs("ingest"), access.needs("site")
    service = thread.service

    def messages(kind: Kind) -> Any:
        operation, summary = _MESSAGES[kind]
        settings = about("devices", summary, None, 404, 409, 410, 422, 425, body=MessageOperation)

        @post("/v1/trials/{name:str}/" + kind, operation_id=operation, status_code=200, **settings)
        async def take(name: Name) -> Response[Received]:
            return AtDesk(desks[kind])

        return take

    published = about("devices", "What devices reply to, in mode scores", guard, 404, 409, 425)

    @get("/v1/trials/{name:str}/coefficients", **published)
    async def coefficients(name: Name) -> PublishedCoefficients:
        return await thread.run(service.devices.coefficients, name)

    @post(
        "/v1/trials/{name:str}/tallies",
        status_code=200,
        **about("devices", "A site's tallies", for_sites, 404, 409, 410, 422, body=TalliesOperation),
    )
    async def tallies(
        request: Asked, name: Name, number: NumberHeader, site: SiteHeader = None, sending: SendingHeader = 1
    ) -> Received:
        require_kind(request.scope, "application/octet-stream")
        token = sender(request.scope, federated=True)
        with thread.place(token):
            body = await read_body(request.scope, request.receive, service.limits.max_body, patience)
            with thread.forgetting():
                try:
                    received = await thread.run(
                        service.devices.receive_site, name, bytes.fromhex(number), body, token, site, sending
                    )
                finally:
                    wipe(body)
        if name not in service.devices.uncounted:
            thread.metrics.message("tallies")
        return received

    return [*map(messages, _MESSAGES), coefficients, tallies]
