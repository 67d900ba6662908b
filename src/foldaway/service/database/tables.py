"""The tables, in two parts: the trials, and apart from them the trials' keys. A change here is a revision too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

Part = Literal["trials", "keys"]

Lock = Literal["share", "update"] | None

Change = Callable[[sa.Connection], None]
"""What is written, or made sure of, in a transaction of somebody else."""

T = TypeVar("T")

# SQLite takes 32,766 values in one statement, PostgreSQL 65,535.
_AT_ONCE = 5_000

ABOUT = {part: sa.MetaData() for part in ("trials", "keys")}

# One row: the id of the key that everything in this part is sealed under.
META = {part: sa.Table(f"foldaway_{part}_meta", about, sa.Column("key", sa.Text)) for part, about in ABOUT.items()}

TRIALS = sa.Table(
    "foldaway_trials",
    ABOUT["trials"],
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("plan", sa.Text, nullable=False),
    sa.Column("fingerprint", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("created", sa.Double, nullable=False),
    sa.Column("ended", sa.Double),
    sa.Column("final", sa.Text),
    sa.Column("exact_answers", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("team", sa.Text),
)


def _of_trial(table: str, *columns: sa.Column[Any], **settings: Any) -> sa.Table:
    """A table of which each row is about a trial."""
    trial: sa.Column[str] = sa.Column("trial", sa.ForeignKey(TRIALS.c.name), primary_key=True)
    return sa.Table(table, ABOUT["trials"], trial, *columns, **settings)


SHARDS = _of_trial(
    "foldaway_shards",
    sa.Column("shard", sa.Text, primary_key=True),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("n", sa.BigInteger, nullable=False),
    sa.Column("left_out", sa.BigInteger, nullable=False),
    sa.Column("state", sa.LargeBinary),
)

# A producer's last durable sequence, 0 before the first, and the id of the token that its name belongs to.
SEQUENCES = _of_trial(
    "foldaway_sequences",
    sa.Column("producer", sa.Text, primary_key=True),
    sa.Column("sequence", sa.BigInteger, nullable=False),
    sa.Column("token", sa.Text),
)

# A federated trial's single-use numbers, hashed; a hash of each with the arm that it was enrolled for, which says
# nothing to those who do not have the number; and whether what came under them is counted. Of a counted report there is
# such a hash, too, and the shard that it is in; at last, whether it was withdrawn. In SQLite they stand in the order of
# their hashes, so that the table says nothing about who came when; PostgreSQL knows no such tables.
NUMBERS = _of_trial(
    "foldaway_numbers",
    sa.Column("number", sa.LargeBinary, primary_key=True),
    sa.Column("used", sa.Boolean, nullable=False),
    sa.Column("arm", sa.LargeBinary),
    sa.Column("report", sa.LargeBinary),
    sa.Column("shard", sa.Text),
    sa.Column("out", sa.Boolean, nullable=False, server_default=sa.false()),
    sqlite_with_rowid=False,
)

# The invitations that no device has used yet, hashed.
INVITATIONS = _of_trial(
    "foldaway_invitations",
    sa.Column("invitation", sa.LargeBinary, primary_key=True),
    sqlite_with_rowid=False,
)

DEVICES = _of_trial(
    "foldaway_devices",
    sa.Column("arm", sa.Text, primary_key=True),
    sa.Column("enrolled", sa.BigInteger, nullable=False),
    sa.Column("reported", sa.BigInteger, nullable=False),
    sa.Column("withdrawn", sa.BigInteger, nullable=False, server_default="0"),
)

# A federated trial that is ending: until when reports count, and what was published.
ENDINGS = _of_trial(
    "foldaway_endings",
    sa.Column("deadline", sa.Double, nullable=False),
    sa.Column("share", sa.Double, nullable=False),
    sa.Column("without_effects", sa.Boolean, nullable=False),
    sa.Column("published", sa.LargeBinary),
)

TOKENS = sa.Table(
    "foldaway_tokens",
    ABOUT["trials"],
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("hash", sa.LargeBinary, nullable=False),
    sa.Column("scope", sa.Text, nullable=False),
    sa.Column("trial", sa.Text),
    sa.Column("created", sa.Double, nullable=False),
    sa.Column("revoked", sa.Boolean, nullable=False),
    sa.Column("units", sa.BigInteger),
    sa.Column("brought", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("team", sa.Text),
    sa.Column("label", sa.Text),
    sa.Column("used", sa.Text),
    sa.Column("expires", sa.Double),
)

# What was told of each trial, and when. The last one also has the whole answer, and who stood behind it.
HISTORY = _of_trial(
    "foldaway_history",
    sa.Column("records", sa.BigInteger, primary_key=True),
    sa.Column("time", sa.Double, nullable=False),
    sa.Column("estimates", sa.LargeBinary, nullable=False),
    sa.Column("answer", sa.LargeBinary),
    sa.Column("census", sa.LargeBinary),
)

# The planned looks that were taken of each trial, empty once it has ended.
LOOKS = _of_trial(
    "foldaway_looks",
    sa.Column("number", sa.BigInteger, primary_key=True),
    sa.Column("look", sa.LargeBinary),
)

# What happened in each trial: signed entries, each after those that it names.
LEDGER = _of_trial(
    "foldaway_ledger",
    sa.Column("number", sa.BigInteger, primary_key=True),
    sa.Column("line", sa.Text, nullable=False),
)

# By fingerprint, not by name: a key left behind by a registration that broke off never meets another plan.
KEYS = sa.Table(
    "foldaway_keys",
    ABOUT["keys"],
    sa.Column("fingerprint", sa.Text, primary_key=True),
    sa.Column("key", sa.LargeBinary, nullable=False),
)

# What the store signs ledgers with. It outlives all trials.
SIGNING = sa.Table(
    "foldaway_signing",
    ABOUT["keys"],
    sa.Column("purpose", sa.Text, primary_key=True),
    sa.Column("key", sa.LargeBinary, nullable=False),
)


def by_lock(query: sa.Select[Any]) -> dict[Lock, sa.Select[Any]]:
    """A query for rows as they are; and such that lock them until the transaction ends, shared or to be changed."""
    return {None: query, "share": query.with_for_update(read=True), "update": query.with_for_update()}


def insert_new(connection: sa.Connection, table: sa.Table, rows: Iterable[Mapping[str, Any]]) -> int:
    """Insert rows, but for those whose primary key is there already; how many were new."""
    rows = list(rows)
    if not rows:
        return 0
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    # For many rows at once, SQLAlchemy counts only where it is asked to, and PostgreSQL's driver says -1 otherwise.
    statement = insert(table).on_conflict_do_nothing().execution_options(preserve_rowcount=True)
    return connection.execute(statement, rows).rowcount


def parts(items: Iterable[T]) -> Iterator[Sequence[T]]:
    """The items, as many at a time as one statement takes."""
    rest = iter(items)
    while part := list(islice(rest, _AT_ONCE)):
        yield part
