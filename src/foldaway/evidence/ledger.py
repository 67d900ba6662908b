"""The ledger: what happened in a trial, in entries that are signed and name the entries before them by their hashes.

An entry names the one before it; where states were merged, the last ones of all their ledgers. So nobody changes, adds
or removes an entry without changing the hash of the last one, the head: whoever published that has published all of it.
There is no record in a ledger, and no count that others may not see. Whoever holds the signing key could write all of
it anew, with other times: only a head that was published elsewhere stands against that.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from foldaway.evidence.signing import Signer, canonical, digest

REGISTERED = "plan registered"
KEY_IN_USE = "key in use"
WRITTEN = "state written"
MERGED = "states merged"
AUDITED = "audited"
ANSWERED = "effects answered"
ENDED = "trial ended"
KEY_DESTROYED = "key destroyed"

KINDS: dict[str, dict[str, type | tuple[type, ...]]] = {
    REGISTERED: {"fingerprint": str, "ledger": str, "records": int, "version": str, "package": str},
    KEY_IN_USE: {"key": str},
    WRITTEN: {"records": int},
    MERGED: {},
    AUDITED: {"attacks": list, "found": str},
    ANSWERED: {"effects": str, "tallies": str},
    ENDED: {"records": (int, type(None)), "version": str, "package": str},
    KEY_DESTROYED: {"key": str},
}
"""Every kind of entry, and what its content is."""

NOBODY, WITH_KEYS, SOME = "nobody", "some, with the keys", "some"
"""Whose values an audit could work out. How many they are is not for others: the number would depend on outcomes."""


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that happened.

    Attributes:
        kind: What, one of `KINDS`.
        time: When, in UTC; of a written state only the hour, since a finer time would be that of a single record.
        content: More about it: text and whole numbers.
        previous: The hashes of the entries before it; none for the first, several where states were merged.
        key: The public key of whoever has signed it.
    """

    kind: str
    time: str
    content: dict[str, Any]
    previous: list[str]
    key: str

    def signed(self) -> bytes:
        """The bytes that are signed and hashed."""
        return canonical(msgspec.to_builtins(self))

    @property
    def hash(self) -> str:
        """What later entries know it by."""
        return digest(self.signed())


class SignedEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry and its signature."""

    entry: Entry
    signature: str


class Ledger(msgspec.Struct, frozen=True):
    """The entries of a trial, each after all that it names.

    Example:
        >>> ledger = Ledger().add(Signer(bytes(32)), REGISTERED, {"fingerprint": "5a"}).add(Signer(bytes(32)), ENDED)
        >>> [entry.kind for entry in ledger], ledger.lines[1].entry.previous == [ledger.lines[0].entry.hash]
        (['plan registered', 'trial ended'], True)
    """

    lines: list[SignedEntry] = []

    def __iter__(self) -> Iterator[Entry]:
        return (line.entry for line in self.lines)

    def __bool__(self) -> bool:
        return bool(self.lines)

    @property
    def head(self) -> str:
        """The hash of the last entry, which stands for the whole ledger; empty if there is none."""
        return self.lines[-1].entry.hash if self.lines else ""

    def last(self, *kinds: str) -> Entry | None:
        """The last entry of these kinds, if there is one."""
        return next((line.entry for line in reversed(self.lines) if line.entry.kind in kinds), None)

    @property
    def ended(self) -> bool:
        """Whether the trial has ended."""
        return self.last(ENDED) is not None

    def keys_left(self) -> list[str]:
        """The marks of keys that were in use and are not noted as destroyed."""
        gone = {entry.content["key"] for entry in self if entry.kind == KEY_DESTROYED}
        used = dict.fromkeys(entry.content["key"] for entry in self if entry.kind == KEY_IN_USE)
        return [key for key in used if key not in gone]

    def registered(self, signer: Signer, fingerprint: str, records: int, time: str = "") -> Ledger:
        """Begun with a plan, if it has not begun; `records` had come by then, of which there should be none."""
        if self:
            return self
        # A number of its own tells ledgers of one plan apart that were begun in the same second.
        about = {"fingerprint": fingerprint, "ledger": secrets.token_hex(8), "records": records, **software()}
        return self.add(signer, REGISTERED, about, time)

    def used(self, signer: Signer, key: str) -> Ledger:
        """With the mark of the trial's key, if it is new."""
        known = any(entry.kind == KEY_IN_USE and entry.content["key"] == key for entry in self)
        return self if known else self.add(signer, KEY_IN_USE, {"key": key})

    def written(self, signer: Signer, records: int, cohort: int) -> Ledger:
        """With a state that was written, if the trial has doubled and grown by a cohort: so the ledger stays small."""
        last = self.last(WRITTEN)
        before = 0 if last is None else int(last.content["records"])
        if records < max(2 * before, before + cohort):
            return self
        return self.add(signer, WRITTEN, {"records": records}, now(hour=True))

    def answered(self, signer: Signer, effects: str, tallies: str) -> Ledger:
        """With effects that others see, and a commitment to the tallies that they can be read from; none if empty."""
        last, about = self.last(ANSWERED), {"effects": digest(effects), "tallies": tallies}
        return self if last is not None and last.content == about else self.add(signer, ANSWERED, about)

    def audited(self, signer: Signer, attacks: Sequence[str], solved: int, solved_with_keys: int) -> Ledger:
        """With the result of an audit."""
        found = SOME if solved else WITH_KEYS if solved_with_keys else NOBODY
        return self.add(signer, AUDITED, {"attacks": list(attacks), "found": found})

    def add(
        self, signer: Signer, kind: str, content: Mapping[str, Any] | None = None, time: str = "", *heads: str
    ) -> Ledger:
        """With one more entry, after the last one; or, where ledgers were merged, after the heads of all of them."""
        previous = list(heads) or ([self.head] if self.lines else [])
        entry = Entry(kind, time or now(), dict(content or {}), previous, signer.key)
        return Ledger([*self.lines, SignedEntry(entry, signer.sign(entry.signed()))])

    def merge(self, other: Ledger, signer: Signer) -> Ledger:
        """The ledger of both trials, which were merged; if one has all entries of the other, that one."""
        ours, theirs = ({entry.hash for entry in each} for each in (self, other))
        if theirs <= ours:
            return self
        if ours <= theirs:
            return other
        both = Ledger([*self.lines, *(line for line in other.lines if line.entry.hash not in ours)])
        return both.add(signer, MERGED, None, "", self.head, other.head)


def now(*, hour: bool = False) -> str:
    """The time in UTC, or the beginning of its hour."""
    time = datetime.now(UTC)
    return time.strftime("%Y-%m-%dT%H:00:00Z" if hour else "%Y-%m-%dT%H:%M:%SZ")


@cache
def software() -> dict[str, str]:
    """The version, and SHA-256 of the canonical list of all files of the package that are code, with their hashes.

    Example:
        >>> sorted(software())
        ['package', 'version']
    """
    package = Path(__file__).parents[1]
    files = sorted(path for path in package.rglob("*") if path.suffix in (".py", ".js", ".css", ".html"))
    hashes = {path.relative_to(package).as_posix(): digest(path.read_bytes()) for path in files}
    try:
        number = version("foldaway")
    except PackageNotFoundError:  # a source tree that is not installed
        number = "unknown"
    return {"version": number, "package": digest(canonical(hashes))}


def head_sentence(head: str) -> str:
    """What to do with the head of a ledger, for whoever runs a trial."""
    return (
        f"Head of the ledger: {head} (publish this hash elsewhere, such as in a registry or a public commit, to prove "
        "that the ledger was not written later)."
    )
