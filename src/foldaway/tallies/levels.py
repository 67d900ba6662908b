"""Levels that a plan does not list: known by a keyed mark, and by name only once enough units have them.

The value of a segment that few have may be as telling as a record. So what is held of a level is its mark, a keyed hash
of its name: the same in every batch, worker and server that has the trial's key, and nothing to whoever has not. A
record brings mark and name. The name is taken over from a record that comes when the level is common, and thrown away
before. Until then the level counts among the others.

An entry is the mark and then the name, if that is known. A level that the plan lists is its name alone.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import blake2b

from foldaway.plan import Plan
from foldaway.records.batch import Batch

OTHER = ""
"""The level of whoever has none of their own, in a segment whose levels the plan does not list."""

OTHERS = "(others)"
"""What people read in its place."""

# No name of a level begins like this.
_SIGN = "\0"

_BYTES = 9
_LENGTH = len(_SIGN) + _BYTES * 4 // 3


def marked(batch: Batch, plan: Plan, key: bytes) -> Batch:
    """The batch, with the marks of levels that the plan does not list before their names.

    Args:
        batch: The batch.
        plan: Its plan.
        key: The trial's for levels.
    """
    segments = [
        (levels, place) if plan.levels_of(column) else ([marked_name(key, column, name) for name in levels], place)
        for column, (levels, place) in zip(plan.segments, batch.segments, strict=True)
    ]
    characteristics = [
        given and ([marked_name(key, column, name) for name in given[0]], given[1])
        for column, given in zip(plan.unlisted_characteristics, batch.characteristics, strict=True)
    ]
    return replace(batch, segments=segments, characteristics=characteristics)


def marked_name(key: bytes, column: str, name: str) -> str:
    """The entry of a level of this column: its mark and its name."""
    text = f"{len(column)} {column}{name}".encode(errors="surrogatepass")
    digest = blake2b(text, key=key, digest_size=_BYTES, person=b"foldaway-level").digest()
    return _SIGN + base64.b64encode(digest).decode() + name


def identity(entry: str) -> str:
    """What an entry is known by: its mark or, where it has none, its name."""
    return entry[:_LENGTH] if entry.startswith(_SIGN) else entry


def is_marked(entry: str) -> bool:
    """Whether an entry has a mark; else it is the name of a level that somebody else vouches for."""
    return entry.startswith(_SIGN)


def name_of(entry: str) -> str:
    """The name of an entry: that of the others where it is not known.

    Example:
        >>> mark = chr(0) + "mark" * 3
        >>> name_of("web"), name_of(mark), name_of(mark + "web")
        ('web', '', 'web')
    """
    return entry[_LENGTH:] if entry.startswith(_SIGN) else entry


def with_marks(held: Sequence[str], entries: Iterable[str], most: int) -> list[str]:
    """The entries held, and the marks of new ones after them, as long as there is room."""
    known = {identity(each) for each in held}
    new = [identity(each) for each in entries if identity(each) not in known]
    return [*held, *new[: max(most - len(held), 0)]]


def united(one: Sequence[str], two: Sequence[str]) -> list[str]:
    """The entries of both, with the name where either has it."""
    entries = {identity(each): each for each in two}
    entries |= {identity(each): max(each, entries.get(identity(each), "")) for each in one}
    order = dict.fromkeys(map(identity, (*one, *two)))
    return [entries[each] for each in order]
