"""Who may do what, and what is said to those who may not: from a token and the address alone, never from a trial.

A refusal names the token that is needed and the one that was sent. It is the same whether there is such a trial or not,
so that nobody learns from it which trials a server has.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from foldaway.service.keys.tokens import NAME, OF_A_TRIAL, Scope, TokenRow


def allows(row: TokenRow, scope: Scope, trial: str | None = None, team: str | None = None) -> bool:
    """Whether a token opens what takes one of this scope.

    Args:
        row: The token: an admin's is for everything, a team's for what its team owns and for reading that, any other
            for its own trial, or for the server's metrics.
        scope: What is asked for.
        trial: Of which trial, if of one.
        team: The team that the trial belongs to, if to one.

    Example:
        >>> from foldaway.service.keys.tokens import Wanted, issue
        >>> reader, leader = issue(Wanted("read", "new-button"))[0], issue(Wanted("team", team="checkout"))[0]
        >>> allows(reader, "read", "new-button", "checkout"), allows(reader, "ingest", "new-button", "checkout")
        (True, False)
        >>> allows(leader, "read", "new-button", "checkout"), allows(leader, "read", "ranking", "search")
        (True, False)
    """
    if row.scope == "team":
        return scope in ("team", "read") and (trial is None or team == row.team)
    return row.scope == "admin" or (row.scope == scope and row.trial == trial)


def may_issue(row: TokenRow, scope: Scope) -> bool:
    """Whether a token may issue others of a scope, for a trial that it may read: a team's only those of one trial."""
    return row.scope == "admin" or (row.scope == "team" and scope in OF_A_TRIAL)


def refused(scopes: Sequence[Scope], trial: str | None, sent: TokenRow) -> str:
    """Why a valid token is not the right one.

    Example:
        >>> from foldaway.service.keys.tokens import Wanted, issue
        >>> sender, _ = issue(Wanted("ingest", "new-button"))
        >>> refused(["read"], "new-button", sender)
        'this needs a read token for new-button; you sent an ingest token for new-button.'
        >>> refused(["admin"], None, sender)
        'this needs an admin token; you sent an ingest token for new-button.'
    """
    return f"this needs {_needed(scopes, trial)}; you sent {_kind(sent)}."


def not_its_teams(row: TokenRow) -> str:
    """What a team's token is told of a trial that belongs to nobody, to another team, or is not there."""
    return f"the team {row.team} has no trial of this name; `foldaway trial status` shows those that it has."


def unknown(scopes: Sequence[Scope], trial: str | None, sent: TokenRow | None, *, came: bool) -> str:
    """Why a request comes with no valid token.

    Args:
        scopes: The tokens that would do.
        trial: The trial in the address, if there is one.
        sent: The token that was sent, if its secret is right and it is good no longer.
        came: Whether anything was sent.
    """
    if sent is not None:
        day = "" if sent.expires is None else f" on {day_of(sent.expires)}"
        fault = f"{_kind(sent)} was sent, which {'was revoked' if sent.revoked else f'expired{day}'}"
    elif came:
        fault = "the token is not valid: it is not complete, or not of this server"
    else:
        fault = "no token was sent, as the header `Authorization: Bearer TOKEN`"
    return f"{fault}; this needs {_needed(scopes, trial)}."


def day_of(time: float) -> str:
    """The day (UTC) of a time in seconds since 1970."""
    return datetime.fromtimestamp(time, UTC).date().isoformat()


def _needed(scopes: Sequence[Scope], trial: str | None) -> str:
    own = [scope for scope in scopes if scope in OF_A_TRIAL]
    if own:
        listed = " or ".join(filter(None, [", ".join(own[:-1]), own[-1]]))
        words = f"{_article(own[0])} {listed} token"
        if trial is None:
            return words
        return f"{words} for {trial if re.fullmatch(NAME, trial) else 'the trial in the address'}"
    if "team" in scopes:
        return f"an admin token or {'a' if trial is None else 'its'} team's"
    return "a metrics token" if "metrics" in scopes else "an admin token"


def _kind(row: TokenRow) -> str:
    if row.scope == "team":
        return f"a token of the team {row.team}"
    return f"{_article(row.scope)} {row.scope} token" + ("" if row.trial is None else f" for {row.trial}")


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"
