"""Both databases for the tests of the store, and what can be found in their files."""

from __future__ import annotations

import os
import sqlite3
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psycopg

import foldaway as fa
from foldaway.keeping.user_keys import state_home
from foldaway.keeping.version_keys import VersionKeys
from foldaway.service.database.store import Store
from foldaway.service.keys.vault import Vault, version_of
from plans import SMALL
from postgres import Postgres

VAULT = Vault([bytes(range(32))])
PLAN = fa.Plan(**SMALL)
BOOTSTRAPPED = fa.Plan(**{**SMALL, "name": "resampled", "moments": {"bootstrap": 100}})


def renamed(plan: fa.Plan, name: str) -> fa.Plan:
    """The same analysis as another trial."""
    return msgspec.structs.replace(plan, name=name)


@dataclass(frozen=True)
class Place:
    """A new, empty place for a store: a folder, or a database of a running server."""

    where: str
    server: Postgres | None = None

    def open(self, vault: Vault = VAULT) -> Store:
        return Store.open(self.where, vault)

    def files(self, *, log: bool = True) -> bytes:
        """The raw bytes of all files of the database; with or without PostgreSQL's write-ahead log."""
        if self.server is None:
            roots = [Path(self.where)]
        else:
            self.server.execute("CHECKPOINT")
            ((number,),) = self.sql("SELECT oid FROM pg_database WHERE datname = current_database()")
            roots = [self.server.data / "base" / str(number)] + [self.server.data / "pg_wal"] * log
        found = [file for root in roots for file in root.rglob("*") if file.is_file()]
        return b"\0\0".join(file.read_bytes() for file in found if file.name != "master.key")

    def versions(self) -> Path:
        """The file of version keys."""
        if self.server is None:
            return Path(self.where) / "version.keys"
        return state_home() / "versions" / f"{self.where.rsplit('/', 1)[1]}.keys"

    def opened(self, sealed: bytes, context: str) -> bytes:
        """What was sealed for a place, with all keys that there are now: without the store's help."""
        name = version_of(sealed)
        return VAULT.decrypt(sealed, context, name and VersionKeys(self.versions()).find(name))

    def sql(self, command: str, *values: Any, file: str = "foldaway.db") -> list[tuple[Any, ...]]:
        """Tamper with the tables behind the store's back."""
        if self.server is None:
            connection = sqlite3.connect(Path(self.where) / file)
            try:
                with connection:
                    return connection.execute(command, values).fetchall()
            finally:
                connection.close()
        with psycopg.connect(self.where) as session:
            cursor = session.execute(command.replace("?", "%s").encode(), values)
            return cursor.fetchall() if cursor.description else []


def forked(work: Callable[[], None]) -> int:
    """Run something in a process of its own, which is to be killed or waited for; its id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def said_plainly(error: BaseException, *secrets: str) -> bool:
    """Whether an error says nothing of these, and holds on to no other error and no frame that might."""
    frames = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    return (
        error.__cause__ is None
        and error.__context__ is None
        and not any(secret in str(error) + repr(error) for secret in secrets)
        and not any("site-packages" in name for name in frames)
    )
