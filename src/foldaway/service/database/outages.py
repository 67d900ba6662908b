"""What is wrong with a database, in our words: its own errors quote what was to be written, and stop here."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from inspect import isfunction
from typing import ParamSpec, TypeVar

from sqlalchemy import exc

from foldaway.errors import FoldawayError, StoreError, Unavailable, instead_of

P = ParamSpec("P")
T = TypeVar("T")

# How SQLite's error names and PostgreSQL's SQLSTATEs begin, and what that means for people.
_OUTAGES = {
    "SQLITE_FULL": "its disk is full",
    "SQLITE_READONLY": "it is read-only",
    "SQLITE_BUSY": "another process has it locked",
    "SQLITE_LOCKED": "another process has it locked",
    "SQLITE_CANTOPEN": "its file is missing or cannot be opened",
    "SQLITE_IOERR": "its disk is full or failing",
    "SQLITE_ERROR": "its tables are missing",
    "SQLITE_NOTADB": "its file is damaged",
    "SQLITE_CORRUPT": "its file is damaged",
    "08": "it cannot be reached: check that it runs, and the host and port in its address",
    "25006": "it is read-only",
    "28P01": "it rejects the password: check FOLDAWAY_DATABASE_PASSWORD or the file of --database-password-file",
    "28": "it rejects this user: check the user in its address, and pg_hba.conf of the database server",
    "3D": "no database has this name: create it (createdb NAME), or check the name in its address",
    "40": "another server was in the way",
    "42501": "this user may not write to it",
    "42P01": "its tables are missing",
    "53100": "its disk is full",
    "53": "it is out of resources",
    "55": "another server has it locked",
    "57014": "it takes too long to answer",
    "57": "it is stopping or starting",
    "58": "its disk is full or failing",
    "XX": "it reports a fault of its own",
}

# While it connects, PostgreSQL's library gives no SQLSTATE: which one its text means, which is not repeated.
_REFUSALS = {
    r"password authentication failed": "28P01",
    r'database ".*" does not exist': "3D000",
    r'role ".*" does not exist|no pg_hba\.conf entry|authentication failed': "28000",
    r"starting up|shutting down|recovery mode": "57P03",
    r"too many|remaining connection slots": "53300",
}
_NO_PASSWORD = "it asks for a password: set FOLDAWAY_DATABASE_PASSWORD, or name a file with --database-password-file"

# How often it is tried to be between the commits of other servers.
_ATTEMPTS = 5

_UNFIT = "a name or a number is not one that the database can hold."


def guarded(table: type[T], *again: type[FoldawayError]) -> type[T]:
    """Let only our errors out of the public methods of a class that talks to a database; try `again` after some."""
    for name, method in list(vars(table).items()):
        if isfunction(method) and not name.startswith("_"):
            setattr(table, name, _guarded(again_after(*again)(method)))
    return table


def _guarded(method: Callable[P, T]) -> Callable[P, T]:
    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with instead_of(exc.SQLAlchemyError, _fault_of), instead_of((OverflowError, UnicodeError), StoreError(_UNFIT)):
            return method(*args, **kwargs)

    return call


def again_after(*faults: type[FoldawayError]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Try once more, a few times, what fails because another server has changed the same in between."""

    def decorate(method: Callable[P, T]) -> Callable[P, T]:
        @wraps(method)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            for _ in range(_ATTEMPTS - 1):
                with suppress(*faults):
                    return method(*args, **kwargs)
            return method(*args, **kwargs)

        return call

    return decorate


def _fault_of(error: exc.SQLAlchemyError) -> StoreError:
    if isinstance(error, exc.TimeoutError):
        return _unavailable("all connections to it are in use")
    if not isinstance(error, exc.DBAPIError):
        return StoreError(f"the database's tables are not as foldaway left them ({type(error).__name__}).")
    if getattr(getattr(error.orig, "pgconn", None), "needs_password", False):
        return _unavailable(_NO_PASSWORD)
    code = getattr(error.orig, "sqlite_errorname", None) or getattr(error.orig, "sqlstate", None) or ""
    if not code and isinstance(error, exc.OperationalError):
        said = str(error.orig)
        code = next((state for pattern, state in _REFUSALS.items() if re.search(pattern, said)), "")
    for beginning, words in _OUTAGES.items():
        if code.startswith(beginning):
            return _unavailable(words)
    if error.connection_invalidated or isinstance(error, exc.OperationalError | exc.InterfaceError):
        return _unavailable(_OUTAGES["08"])
    if isinstance(error, exc.DataError):
        return StoreError(_UNFIT)
    return StoreError(f"the database refused ({code or type(error).__name__}); its own log says more.")


def _unavailable(words: str) -> Unavailable:
    return Unavailable(f"the database is not available: {words}. Try again when this is mended.")
