"""Access tokens: what they are. A token is told once; what is kept is a hash of its secret."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from typing import Annotated, Literal

import msgspec

Scope = Literal["admin", "team", "ingest", "site", "invite", "read", "metrics"]

OF_A_TRIAL = ("ingest", "site", "invite", "read")
"""Scopes of tokens that are for one trial."""

SENDING = ("ingest", "site")
"""Scopes of tokens that records come with: when one was last used is kept nowhere, since that would be a receipt."""

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
"""The name of a trial or a team."""

_FORM = re.compile(r"fa_([0-9a-f]{16})_([A-Za-z0-9_-]{43})", re.ASCII)
# For texts that are no token and ids that nobody has: they take the same path as all others.
_NOBODY = "0" * 16, "0" * 43


class TokenRow(msgspec.Struct, frozen=True):
    """What is kept of a token.

    Attributes:
        id: The public part.
        hash: SHA-256 of the secret part.
        scope: ``"admin"`` for everything, ``"team"`` for the trials of one team, ``"ingest"``, ``"site"``,
            ``"invite"`` or ``"read"`` for one trial, ``"metrics"`` for the counts and times of the server alone.
        trial: The trial's name; none for admin, team and metrics.
        created: When, in seconds since 1970.
        revoked: Whether it was taken back.
        units: Of a site's, the most units that it may bring in all.
        brought: How many it has brought.
        team: Of a team's, which team.
        label: What it is for, in words of whoever issued it.
        expires: When it is no longer good, in seconds since 1970; none if never.
        used: The day (UTC) of its last use, as 2026-01-31; none before the first, and always of those that send.
    """

    id: str
    hash: bytes
    scope: Scope
    trial: str | None
    created: float
    revoked: bool = False
    units: int | None = None
    brought: int = 0
    team: str | None = None
    label: str | None = None
    expires: float | None = None
    used: str | None = None

    @property
    def status(self) -> Literal["valid", "revoked", "expired"]:
        """Whether it is still good."""
        if self.revoked:
            return "revoked"
        return "valid" if self.expires is None or time.time() < self.expires else "expired"


class Wanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token to be issued: see `TokenRow`.

    Attributes:
        expires_in: After how many seconds it is no longer good; none for never.
    """

    scope: Scope
    trial: str | None = None
    units: Annotated[int, msgspec.Meta(ge=1, le=10**15)] | None = None
    team: str | None = None
    label: str | None = None
    expires_in: Annotated[int, msgspec.Meta(ge=1, le=10**10)] | None = None

    def fault(self) -> str | None:
        """What keeps it from being one, as the field and a sentence.

        Example:
            >>> Wanted("read").fault()
            '`trial` is missing: a token with the scope "read" is for one trial.'
            >>> Wanted("read", "checkout-button").fault(), Wanted("team", team="checkout").fault()
            (None, None)
        """
        needs: dict[str, tuple[str, ...]] = {
            "trial": OF_A_TRIAL,
            "units": ("site",),
            "team": ("team",),
        }
        for field, scopes in needs.items():
            given = getattr(self, field) is not None
            if self.scope in scopes and not given:
                return f'`{field}` is missing: a token with the scope "{self.scope}" is for {_FOR[field]}.'
            if given and self.scope not in scopes:
                return f'`{field}` does not go with the scope "{self.scope}": leave it out.'
        if self.team is not None and not re.fullmatch(NAME, self.team):
            return "`team` must begin with a letter or digit, and go on with these, dots, hyphens or underscores."
        if self.label is not None and not (0 < len(self.label) <= 100 and self.label.isprintable()):
            return "`label` must be one line of at most 100 characters."
        return None


_FOR = {"trial": "one trial", "units": "so many units at most", "team": "one team"}


def issue(wanted: Wanted) -> tuple[TokenRow, str]:
    """A new token: what to keep of it, and its text for whoever is to use it.

    Example:
        >>> row, text = issue(Wanted("read", "checkout-button"))
        >>> verify(text, row), verify(text[:-1] + "?", row), verify(text, None)
        (True, False, False)
    """
    if (fault := wanted.fault()) is not None:
        raise ValueError(fault)
    text = new_token()
    return row_of(text, wanted), text


def new_token() -> str:
    """A token's text, which is good for nothing until its row is stored."""
    return f"fa_{secrets.token_hex(8)}_{secrets.token_urlsafe(32)}"


def row_of(text: str, wanted: Wanted) -> TokenRow:
    """What to keep of a token, from its text.

    Raises:
        ValueError: The text is no token.
    """
    form = _FORM.fullmatch(text)
    if form is None:
        raise ValueError("not the text of a token")
    now = time.time()
    return TokenRow(
        form[1],
        _hashed(form[2]),
        wanted.scope,
        wanted.trial,
        now,
        units=wanted.units,
        team=wanted.team,
        label=wanted.label,
        expires=None if wanted.expires_in is None else now + wanted.expires_in,
    )


def id_of(text: str) -> str | None:
    """The public part of a token's text, to look its row up with; none if the text is no token."""
    form = _FORM.fullmatch(text)
    return form and form[1]


def is_its_text(text: str, row: TokenRow | None) -> bool:
    """Whether a text is the token of this row, still good or not; in the same time whatever is wrong."""
    form = _FORM.fullmatch(text)
    id, secret = (form[1], form[2]) if form else _NOBODY
    row_id, row_hash = (row.id, row.hash) if row is not None else (_NOBODY[0], bytes(32))
    same_id = hmac.compare_digest(id, row_id)
    same_secret = hmac.compare_digest(_hashed(secret), row_hash)
    return same_id & same_secret & (row is not None) & (form is not None)


def verify(text: str, row: TokenRow | None) -> bool:
    """Whether a text is the token of this row, and still good; in the same time whatever is wrong."""
    return is_its_text(text, row) & (row is not None and row.status == "valid")


def _hashed(secret: str) -> bytes:
    # The secret is 256 random bits: no salt or slow hash would make it harder to guess.
    return hashlib.sha256(secret.encode("ascii")).digest()
