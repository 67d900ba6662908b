"""Who may ask what: looked at before anything else of a request is."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Annotated, Any

from litestar.connection import ASGIConnection
from litestar.exceptions import NotAuthorizedException, NotFoundException, PermissionDeniedException
from litestar.handlers import BaseRouteHandler
from litestar.params import PathParameter
from litestar.types import Guard

from foldaway.service.http.problems import NEEDED
from foldaway.service.http.work import Work
from foldaway.service.keys.tokens import Scope, TokenRow, allows, id_of, verify

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
Name = Annotated[str, PathParameter(pattern=NAME, description="The trial's name.")]
Needs = Callable[..., Guard]

Connection = ASGIConnection[Any, Any, Any, Any]

# Seconds for which a token is trusted without another look at the database.
_TRUSTED = 1.0


class Access:
    """Guards for addresses; those of a trial also find its fingerprint, which goes into every answer."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._fingerprints: dict[str, str] = {}  # they never change
        self._tokens: dict[str, tuple[float, TokenRow]] = {}  # until when they are trusted without a look

    def needs(self, *scopes: Scope) -> Guard:
        """A guard that refuses a token which is none of these, for the trial in the address; admin may do all."""

        async def guard(connection: Connection, _: BaseRouteHandler) -> None:
            name = connection.path_params.get("name")
            await self._check(connection, scopes, name)
            if name is not None:
                connection.scope["state"]["fingerprint"] = await self._fingerprint(name)

        return guard

    async def listed(self, connection: Connection, _: BaseRouteHandler) -> None:
        """A guard for the list of trials: a token to read one lists that one, admin lists all."""
        row = await self._holder(connection, ("read",))
        if row.scope == "ingest":
            raise PermissionDeniedException(extra={NEEDED: kinds(("read",))})
        connection.scope["state"]["trial"] = row.trial

    async def _check(self, connection: Connection, scopes: tuple[Scope, ...], trial: str | None) -> None:
        row = await self._holder(connection, scopes)
        if not any(allows(row, scope, trial) for scope in scopes):
            raise PermissionDeniedException(extra={NEEDED: kinds(scopes)})

    async def _holder(self, connection: Connection, scopes: tuple[Scope, ...]) -> TokenRow:
        """The token that a request comes with, if it is one."""
        scheme, _, text = connection.headers.get("Authorization", "").partition(" ")
        token = text.strip() if scheme.lower() == "bearer" else ""
        id = id_of(token)
        row = None if id is None else await self._token(id)
        if not verify(token, row) or row is None:
            raise NotAuthorizedException(extra={NEEDED: kinds(scopes)})
        return row

    async def _token(self, id: str) -> TokenRow | None:
        """A token's row, as it was a second ago at most: a look at the database waits for what is being folded."""
        until, row = self._tokens.get(id, (0.0, None))
        if time.monotonic() < until:
            return row
        found = await self._work.run(self._work.service.store.tokens.find, id)
        if found is not None:  # so that what is kept here is bounded by the tokens that there are
            self._tokens[id] = time.monotonic() + _TRUSTED, found
        return found

    async def revoke(self, id: str) -> bool:
        """Take a token back: here at once, on other servers within a second. Whether there is one of this id."""
        found = await self._work.run(self._work.service.store.tokens.revoke, id)
        self._tokens.pop(id, None)
        return found

    async def _fingerprint(self, name: str) -> str:
        if not re.fullmatch(NAME, name):
            raise NotFoundException
        if name not in self._fingerprints:
            row = await self._work.run(self._work.service.store.trial, name)
            self._fingerprints[name] = row.fingerprint
        return self._fingerprints[name]


def kinds(scopes: tuple[Scope, ...]) -> str:
    """The tokens that open a door, in words.

    Example:
        >>> kinds(("ingest", "read")), kinds(("admin",))
        ("the trial's ingest token, its read token or an admin token", 'an admin token')
    """
    own = [f"{scope} token" for scope in scopes if scope != "admin"]
    if not own:
        return "an admin token"
    return f"the trial's {', its '.join(own)} or an admin token"
