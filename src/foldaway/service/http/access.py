"""Who may ask what: looked at before anything else of a request is; and the addresses of the tokens for it."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from litestar import delete, get, post
from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.params import PathParameter
from litestar.types import Guard

from foldaway.errors import FoldawayError, IngestError, UnknownTrial
from foldaway.plan import Plan
from foldaway.service.http.bodies import Asked, field, read_text
from foldaway.service.http.documents import TokenOperation, about
from foldaway.service.http.folding_thread import FoldingThread
from foldaway.service.http.problems import NOWHERE
from foldaway.service.http.turns import WHOSE
from foldaway.service.keys.rules import allows, day_of, may_issue, not_its_teams, refused, unknown
from foldaway.service.keys.tokens import NAME, SENDING, Scope, TokenRow, Wanted, id_of, is_its_text, verify

Name = Annotated[str, PathParameter(pattern=NAME, description="The trial's name.")]

Connection = ASGIConnection[Any, Any, Any, Any]

_OF_ANOTHER_KIND = {
    True: "the records of this trial stay on its devices, which send reports instead.",
    False: "this trial takes records, not reports of devices: its plan has no `federated`.",
}

# Seconds for which a token is trusted without another look at the database.
_TRUSTED = 1.0


class _Trial(NamedTuple):
    """What never changes of a trial."""

    fingerprint: str
    federated: bool
    team: str | None


class Access:
    """Guards for addresses; those of a trial also find its fingerprint, which goes into every answer."""

    def __init__(self, thread: FoldingThread) -> None:
        self.thread = thread
        self._trials: dict[str, _Trial] = {}
        self._tokens: dict[str, tuple[float, TokenRow]] = {}  # until when they are trusted without a look

    def needs(self, *scopes: Scope) -> Guard:
        """A guard that refuses a token which is none of these, for the trial in the address; admin may do all."""

        async def guard(connection: Connection, _: BaseRouteHandler) -> None:
            await self.admit(connection.scope, scopes)

        return guard

    async def admit(self, scope: Any, scopes: tuple[Scope, ...]) -> None:
        """Let a request in, and note in its state who sends it, and what its trial is.

        Raises:
            IngestError: 401 or 403, and which tokens there are for this; 404 if it is a team's and the trial is not.
        """
        name: str | None = scope["path_params"].get("name")
        row = await self._holder(scope, scopes, name)
        team = await self.require_own(name, row) if name is not None and row.scope == "team" else None
        if not any(allows(row, one, name, team) for one in scopes):
            raise IngestError(403, refused(scopes, name, row))
        state = scope["state"]
        state["token"] = row
        WHOSE.set((name or "", row.id))
        if name is not None:
            state["fingerprint"], state["federated"], _team = await self._trial(name)

    async def listed(self, connection: Connection, _: BaseRouteHandler) -> None:
        """A guard for the list of trials: a token to read one lists that one, a team's its own, admin lists all."""
        row = await self._holder(connection.scope, ("read",), None)
        if row.scope not in ("read", "team", "admin"):
            raise IngestError(403, refused(("read",), None, row))
        connection.scope["state"]["token"] = row

    async def _holder(self, scope: Any, scopes: tuple[Scope, ...], name: str | None) -> TokenRow:
        """The token that a request comes with, if it is one."""
        token = _bearer(field(scope, b"authorization") or "")
        id = id_of(token)
        row = None if id is None else await self._token(id)
        if not verify(token, row) or row is None:
            spent = row if is_its_text(token, row) else None
            raise IngestError(401, unknown(scopes, name, spent, came=field(scope, b"authorization") is not None))
        await self._note_use(row)
        return row

    async def _note_use(self, row: TokenRow) -> None:
        """Note the day of a token's last use, once on each day, unless records come with it."""
        today = day_of(time.time())
        if row.scope not in SENDING and row.used != today:
            with suppress(FoldawayError):  # no reason to refuse: another use of that day notes it
                await self.thread.run(self.thread.service.store.tokens.note_use, row.id, today)
                self._tokens.pop(row.id, None)

    async def require_own(self, name: str, row: TokenRow) -> str | None:
        """The team of the trial that a team's token asks about: its own, or else there is none."""
        with suppress(UnknownTrial, IngestError):
            team = (await self._trial(name)).team
            if team == row.team:
                return team
        raise IngestError(404, not_its_teams(row))

    async def _token(self, id: str) -> TokenRow | None:
        """A token's row, as it was a second ago at most: a look at the database waits for what is being folded."""
        until, row = self._tokens.get(id, (0.0, None))
        if time.monotonic() < until:
            return row
        row = await self.thread.run(self.thread.service.store.tokens.find, id)
        if row is not None:  # so that what is kept here is bounded by the tokens that there are
            self._tokens[id] = time.monotonic() + _TRUSTED, row
        return row

    async def revoke(self, id: str, team: str | None) -> bool:
        """Revoke a token: here at once, on other servers within a second. Whether there is one, for a team's trial."""
        revoked = await self.thread.run(self.thread.service.store.tokens.revoke, id, team)
        self._tokens.pop(id, None)
        return revoked

    async def _trial(self, name: str) -> _Trial:
        if not re.fullmatch(NAME, name):
            raise IngestError(404, NOWHERE)
        if name not in self._trials:
            row = await self.thread.run(self.thread.service.store.trial, name)
            self._trials[name] = _Trial(row.fingerprint, Plan.loads(row.plan).federated is not None, row.team)
        return self._trials[name]


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
    status: Literal["valid", "revoked", "expired"]
    units: int | None = None
    brought: int = 0
    team: str | None = None
    label: str | None = None
    expires: float | None = None
    used: str | None = None


TokenId = Annotated[str, PathParameter(description="The token's id.")]

_TOKEN_BYTES = 2**12


def token_routes(access: Access, patience: float) -> list[Any]:
    """The handlers of tokens."""
    thread, guard = access.thread, access.needs("team")
    table = thread.service.store.tokens

    @post("/v1/tokens", **about("tokens", "Issue a token", guard, 404, body=TokenOperation, stamped=False))
    async def issue(request: Asked) -> Issued:
        text = await read_text(request, ("application/json",), _TOKEN_BYTES, patience)
        wanted, row = _wanted(text), request.scope["state"]["token"]
        if not may_issue(row, wanted.scope):
            raise IngestError(403, refused(("admin",), None, row))
        if row.scope == "team" and wanted.trial is not None:
            await access.require_own(wanted.trial, row)
        made, secret = await thread.run(table.issue, wanted)
        return Issued(made.id, secret)

    @get("/v1/tokens/own", **about("tokens", "What the token of this request may do", access.listed, stamped=False))
    async def own(request: Asked) -> TokenAbout:
        return msgspec.convert(request.scope["state"]["token"], TokenAbout, from_attributes=True)

    every = "All tokens, without their secrets; with a team's, those for its trials"

    @get("/v1/tokens", **about("tokens", every, guard, stamped=False))
    async def tokens(request: Asked) -> list[TokenAbout]:
        rows = await thread.run(table.all, request.scope["state"]["token"].team)
        return msgspec.convert(rows, list[TokenAbout], from_attributes=True)

    @delete("/v1/tokens/{id:str}", **about("tokens", "Revoke a token, by its id", guard, 404, 409, stamped=False))
    async def revoke(request: Asked, id: TokenId) -> None:
        if [row.id for row in await thread.run(table.admins)] == [id]:
            raise IngestError(
                409,
                "this is the only valid admin token: issue another one first (`foldaway token issue admin`), or "
                "replace it where its database is (`foldaway token issue admin --revoke-others --data FOLDER`).",
            )
        if not await access.revoke(id, request.scope["state"]["token"].team):
            raise IngestError(404, "there is no token with this id; `foldaway token list` shows the ids of all tokens.")

    return [issue, own, tokens, revoke]


def _wanted(text: str) -> Wanted:
    """What is asked for."""
    try:
        wanted = msgspec.json.decode(text, type=Wanted)
    except msgspec.ValidationError as error:
        # Where it is, but not what is there: it may be anything.
        where = str(error).rpartition(" - at ")[2].strip("`.") if " - at " in str(error) else "$"
        raise IngestError(400, f"the body is not what is expected at `{where}`: {_FORM}") from None
    except msgspec.DecodeError:
        raise IngestError(400, f"the body is not JSON: {_FORM}") from None
    if (fault := wanted.fault()) is not None:
        raise IngestError(400, fault)
    return wanted


_FORM = (
    'send {"scope": "read", "ingest" or "invite", "trial": NAME}, {"scope": "site", "trial": NAME, "units": the most '
    'units that the site may bring}, {"scope": "team", "team": NAME}, or {"scope": "admin" or "metrics"}; "label" and '
    '"expires_in", in seconds, may be added.'
)
