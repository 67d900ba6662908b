"""Who may ask what: looked at before anything else of a request is; and the addresses of the tokens for it."""

from __future__ import annotations

import re
import time
from typing import Annotated, Any

import msgspec
from litestar import delete, get, post
from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.params import PathParameter
from litestar.types import Guard

from foldaway.errors import IngestError
from foldaway.plan import Plan
from foldaway.service.http.bodies import Asked, field, read_text
from foldaway.service.http.documents import TokenOperation, about
from foldaway.service.http.folding_thread import FoldingThread
from foldaway.service.http.problems import NOWHERE
from foldaway.service.http.turns import WHOSE
from foldaway.service.keys.tokens import FOR_ALL, Scope, TokenRow, allows, id_of, verify

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
Name = Annotated[str, PathParameter(pattern=NAME, description="The trial's name.")]

Connection = ASGIConnection[Any, Any, Any, Any]

_OF_ANOTHER_KIND = {
    True: "the records of this trial stay on its devices, which send reports instead.",
    False: "this trial takes records, not reports of devices: its plan has no `federated`.",
}

# Seconds for which a token is trusted without another look at the database.
_TRUSTED = 1.0


class Access:
    """Guards for addresses; those of a trial also find its fingerprint, which goes into every answer."""

    def __init__(self, thread: FoldingThread) -> None:
        self.thread = thread
        self._trials: dict[str, tuple[str, bool]] = {}  # fingerprint, and whether federated: neither ever changes
        self._tokens: dict[str, tuple[float, TokenRow]] = {}  # until when they are trusted without a look

    def needs(self, *scopes: Scope) -> Guard:
        """A guard that refuses a token which is none of these, for the trial in the address; admin may do all."""

        async def guard(connection: Connection, _: BaseRouteHandler) -> None:
            await self.admit(connection.scope, scopes)

        return guard

    async def admit(self, scope: Any, scopes: tuple[Scope, ...]) -> None:
        """Let a request in, and note in its state who sends it, and what its trial is.

        Raises:
            IngestError: 401 or 403, and which tokens there are for this.
        """
        name: str | None = scope["path_params"].get("name")
        row = await self._holder(scope, scopes)
        if not any(allows(row, one, name) for one in scopes):
            elsewhere = row.scope in scopes and row.trial not in (None, name)
            misspelt = ". This token is for another trial, or the trial's name is misspelt" if elsewhere else ""
            raise _forbidden(scopes, misspelt)
        state = scope["state"]
        state["token"] = row
        WHOSE.set((name or "", row.id))
        if name is not None:
            state["fingerprint"], state["federated"] = await self._trial(name)

    async def listed(self, connection: Connection, _: BaseRouteHandler) -> None:
        """A guard for the list of trials: a token to read one lists that one, admin lists all."""
        row = await self._holder(connection.scope, ("read",))
        if row.scope not in ("read", "admin"):
            raise _forbidden(("read",))
        connection.scope["state"]["token"] = row

    async def _holder(self, scope: Any, scopes: tuple[Scope, ...]) -> TokenRow:
        """The token that a request comes with, if it is one."""
        token = _bearer(field(scope, b"authorization") or "")
        id = id_of(token)
        row = None if id is None else await self._token(id)
        if not verify(token, row) or row is None:
            raise IngestError(401, f"A valid bearer token is needed: this takes {kinds(scopes)}.")
        return row

    async def _token(self, id: str) -> TokenRow | None:
        """A token's row, as it was a second ago at most: a look at the database waits for what is being folded."""
        until, row = self._tokens.get(id, (0.0, None))
        if time.monotonic() < until:
            return row
        row = await self.thread.run(self.thread.service.store.tokens.find, id)
        if row is not None:  # so that what is kept here is bounded by the tokens that there are
            self._tokens[id] = time.monotonic() + _TRUSTED, row
        return row

    async def revoke(self, id: str) -> bool:
        """Revoke a token: here at once, on other servers within a second. Whether there is one with this id."""
        revoked = await self.thread.run(self.thread.service.store.tokens.revoke, id)
        self._tokens.pop(id, None)
        return revoked

    async def _trial(self, name: str) -> tuple[str, bool]:
        if not re.fullmatch(NAME, name):
            raise IngestError(404, NOWHERE)
        if name not in self._trials:
            row = await self.thread.run(self.thread.service.store.trial, name)
            self._trials[name] = row.fingerprint, Plan.loads(row.plan).federated is not None
        return self._trials[name]


def _forbidden(scopes: tuple[Scope, ...], more: str = "") -> IngestError:
    return IngestError(403, f"This token does not allow that: this takes {kinds(scopes)}{more}.")


def _bearer(authorization: str) -> str:
    scheme, _, text = authorization.partition(" ")
    return text.strip() if scheme.lower() == "bearer" else ""


def sender(scope: Any, *, federated: bool) -> str:
    """The id of the token that a body comes with, if the trial is of the kind that takes it.

    Raises:
        IngestError: 409, before any of the body is read: its records stay on devices, or do not.
    """
    state = scope["state"]
    if state["federated"] != federated:
        raise IngestError(409, _OF_ANOTHER_KIND[state["federated"]])
    return str(state["token"].id)


def kinds(scopes: tuple[Scope, ...]) -> str:
    """The tokens that open a door, in words.

    Example:
        >>> kinds(("ingest", "read")), kinds(("admin",))
        ("the trial's ingest token, its read token or an admin token", 'an admin token')
    """
    own = [f"{scope} token" for scope in scopes if scope not in FOR_ALL]
    words = [f"the trial's {', its '.join(own)}"] if own else []
    words += ["a metrics token"] if "metrics" in scopes else []
    return " or ".join([*words, "an admin token"])


class TokenWanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token to be issued."""

    scope: Scope
    trial: str | None = None
    units: Annotated[int, msgspec.Meta(ge=1, le=10**15)] | None = None


class Issued(msgspec.Struct, frozen=True):
    """A new token; it is told this once."""

    id: str
    token: str


class TokenAbout(msgspec.Struct, frozen=True):
    """A token, without its secret."""

    id: str
    scope: str
    trial: str | None
    created: float
    revoked: bool
    units: int | None = None
    brought: int = 0


TokenId = Annotated[str, PathParameter(description="The token's id.")]

_TOKEN_BYTES = 2**12


def token_routes(access: Access, patience: float) -> list[Any]:
    """The handlers of tokens."""
    thread, guard = access.thread, access.needs("admin")
    table = thread.service.store.tokens

    @post("/v1/tokens", **about("tokens", "Issue a token", guard, 404, body=TokenOperation, stamped=False))
    async def issue(request: Asked) -> Issued:
        text = await read_text(request, ("application/json",), _TOKEN_BYTES, patience)
        try:
            wanted: TokenWanted | None = msgspec.json.decode(text, type=TokenWanted)
        except msgspec.MsgspecError:
            wanted = None
        if (
            wanted is None
            or (wanted.scope in FOR_ALL) != (wanted.trial is None)
            or (wanted.scope == "site") != (wanted.units is not None)
        ):
            one = '{"scope": "ingest" or "read", "trial": the trial\'s name}'
            site = '{"scope": "site", "trial": the name, "units": the most units that the site may bring}'
            raise IngestError(400, f'ask for {{"scope": "admin" or "metrics"}}, for {one}, or for {site}.')
        row, secret = await thread.run(table.issue, wanted.scope, wanted.trial, wanted.units)
        return Issued(row.id, secret)

    @get("/v1/tokens/own", **about("tokens", "What the token of this request may do", access.listed, stamped=False))
    async def own(request: Asked) -> TokenAbout:
        return msgspec.convert(request.scope["state"]["token"], TokenAbout, from_attributes=True)

    @get("/v1/tokens", **about("tokens", "All tokens, without their secrets", guard, stamped=False))
    async def tokens() -> list[TokenAbout]:
        return msgspec.convert(await thread.run(table.all), list[TokenAbout], from_attributes=True)

    @delete("/v1/tokens/{id:str}", **about("tokens", "Revoke a token, by its id", guard, 404, 409, stamped=False))
    async def revoke(id: TokenId) -> None:
        if [row.id for row in await thread.run(table.admins)] == [id]:
            raise IngestError(
                409,
                "this is the only valid admin token: issue another one first (`foldaway token issue admin`), or "
                "replace it where the server runs (`foldaway token recover --revoke-others`).",
            )
        if not await access.revoke(id):
            raise IngestError(404, "there is no token with this id; `foldaway token list` shows the ids of all tokens.")

    return [issue, own, tokens, revoke]
