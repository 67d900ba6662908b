"""The address at which an app's own server gets invitations for its devices."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import post

from foldaway.errors import IngestError, instead_of
from foldaway.service.database.invitation_table import MOST
from foldaway.service.http.access import Access, Name
from foldaway.service.http.bodies import Asked, read_text
from foldaway.service.http.documents import InvitationOperation, about

_MOST_BYTES = 2**10


class Invitations(msgspec.Struct, frozen=True):
    """New invitations, each for one device; they are told this once."""

    invitations: list[str]


class InvitationCount(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many are wanted."""

    count: Annotated[int, msgspec.Meta(ge=1, le=MOST)]


def invitation_routes(access: Access, patience: float) -> list[Any]:
    """The handlers of invitations."""
    guard, thread = access.needs("invite", "team"), access.thread
    table = thread.service.store.invitations
    made = about("devices", "New invitations for devices", guard, 404, 409, 410, body=InvitationOperation)

    @post("/v1/trials/{name:str}/invitations", **made)
    async def invite(request: Asked, name: Name) -> Invitations:
        text = await read_text(request, ("application/json",), _MOST_BYTES, patience)
        form = IngestError(400, f'send {{"count": N}}, with N from 1 to {MOST:,}.')
        with instead_of((msgspec.ValidationError, msgspec.DecodeError), form):
            wanted = msgspec.json.decode(text, type=InvitationCount)
        return Invitations(await thread.run(table.invite, name, wanted.count))

    return [invite]
