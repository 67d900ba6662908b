"""Access tokens: who may do what. A token is told once; what is kept is a hash of its secret."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from typing import Literal

import msgspec

Scope = Literal["admin", "ingest", "site", "read", "metrics"]

FOR_ALL = ("admin", "metrics")
"""Scopes of tokens that are for no trial in particular."""

_FORM = re.compile(r"fa_([0-9a-f]{16})_([A-Za-z0-9_-]{43})", re.ASCII)
# For texts that are no token and ids that nobody has: they take the same path as all others.
_NOBODY = "0" * 16, "0" * 43


class TokenRow(msgspec.Struct, frozen=True):
    """What is kept of a token.

    Attributes:
        id: The public part.
        hash: SHA-256 of the secret part.
        scope: ``"admin"`` for everything, ``"ingest"``, ``"site"`` or ``"read"`` for one trial, ``"metrics"`` for the
            counts and times of the server alone.
        trial: The trial's name; none for admin and metrics.
        created: When, in seconds since 1970.
        revoked: Whether it was taken back.
        units: Of a site's, the most units that it may bring in all.
        brought: How many it has brought.
    """

    id: str
    hash: bytes
    scope: Scope
    trial: str | None
    created: float
    revoked: bool = False
    units: int | None = None
    brought: int = 0


def issue(scope: Scope, trial: str | None = None, units: int | None = None) -> tuple[TokenRow, str]:
    """A new token: what to keep of it, and its text for whoever is to use it.

    Example:
        >>> row, text = issue("read", "checkout-button")
        >>> verify(text, row), verify(text[:-1] + "?", row), verify(text, None)
        (True, False, False)
        >>> allows(row, "read", "checkout-button"), allows(row, "ingest", "checkout-button")
        (True, False)
    """
    if (trial is None) != (scope in FOR_ALL):
        raise ValueError("a token for ingest, site or read is for one trial, any other for none in particular")
    if (units is None) != (scope != "site"):
        raise ValueError("a site's token, and no other, says how many units the site may bring")
    text = new_token()
    return row_of(text, scope, trial, units), text


def new_token() -> str:
    """A token's text, which is good for nothing until its row is stored."""
    return f"fa_{secrets.token_hex(8)}_{secrets.token_urlsafe(32)}"


def row_of(text: str, scope: Scope, trial: str | None = None, units: int | None = None) -> TokenRow:
    """What to keep of a token, from its text.

    Raises:
        ValueError: The text is no token.
    """
    form = _FORM.fullmatch(text)
    if form is None:
        raise ValueError("not the text of a token")
    return TokenRow(form[1], _hashed(form[2]), scope, trial, time.time(), units=units)


def id_of(text: str) -> str | None:
    """The public part of a token's text, to look its row up with; none if the text is no token."""
    form = _FORM.fullmatch(text)
    return form and form[1]


def verify(text: str, row: TokenRow | None) -> bool:
    """Whether a text is the token of this row, and the row is not revoked; in the same time whatever is wrong."""
    form = _FORM.fullmatch(text)
    id, secret = (form[1], form[2]) if form else _NOBODY
    row_id, row_hash = (row.id, row.hash) if row is not None else (_NOBODY[0], bytes(32))
    same_id = hmac.compare_digest(id, row_id)
    same_secret = hmac.compare_digest(_hashed(secret), row_hash)
    return same_id & same_secret & (row is not None and not row.revoked) & (form is not None)


def allows(row: TokenRow, scope: Scope, trial: str | None = None) -> bool:
    """Whether a token is good for something: admin for everything, the others for their own trial, or for metrics."""
    return row.scope == "admin" or (row.scope == scope and row.trial == trial and (trial is None) == (scope in FOR_ALL))


def _hashed(secret: str) -> bytes:
    # The secret is 256 random bits: no salt or slow hash would make it harder to guess.
    return hashlib.sha256(secret.encode("ascii")).digest()
