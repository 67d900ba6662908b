"""The tokens' table."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa

from foldaway.service.database.databases import writing
from foldaway.service.database.outages import guarded
from foldaway.service.database.tables import TOKENS, insert_new
from foldaway.service.keys.tokens import TokenRow


@guarded
class TokenTable:
    """The tokens of a database; every method is one transaction."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def add(self, row: TokenRow) -> None:
        """Store a token."""
        with writing(self._engine).begin() as connection:
            connection.execute(TOKENS.insert().values(msgspec.structs.asdict(row)))

    def add_new(self, row: TokenRow) -> None:
        """Store a token, unless there is one with its id."""
        with writing(self._engine).begin() as connection:
            insert_new(connection, TOKENS, [msgspec.structs.asdict(row)])

    def find(self, id: str) -> TokenRow | None:
        """A token by the public part of its text, if there is one."""
        if not id.isprintable():  # not every database takes such text in a question
            return None
        with self._engine.begin() as connection:
            row = connection.execute(sa.select(TOKENS).where(TOKENS.c.id == id)).one_or_none()
        return None if row is None else TokenRow(**row._mapping)

    def all(self) -> list[TokenRow]:
        """All tokens, the oldest first."""
        with self._engine.begin() as connection:
            rows = connection.execute(sa.select(TOKENS).order_by(TOKENS.c.created, TOKENS.c.id)).all()
        return [TokenRow(**row._mapping) for row in rows]

    def revoke(self, id: str) -> bool:
        """Revoke a token; whether there is one with this id."""
        if not id.isprintable():
            return False
        with writing(self._engine).begin() as connection:
            return connection.execute(TOKENS.update().where(TOKENS.c.id == id).values(revoked=True)).rowcount == 1

    def has_admin(self) -> bool:
        """Whether anyone holds a token for everything."""
        query = sa.select(TOKENS.c.id).where(TOKENS.c.scope == "admin", ~TOKENS.c.revoked).limit(1)
        with self._engine.begin() as connection:
            return connection.execute(query).first() is not None
