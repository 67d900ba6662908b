"""The check of a certificate, offline: what is wrong with it, what it proves, and what it cannot prove.

`tools/verify_certificate.py` does the same without foldaway.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

import msgspec

from foldaway.errors import many
from foldaway.evidence.certificate import FORMAT, Body, Certificate
from foldaway.evidence.ledger import (
    ANSWERED,
    AUDITED,
    ENDED,
    KEY_DESTROYED,
    KEY_IN_USE,
    KINDS,
    MERGED,
    NOBODY,
    REGISTERED,
    SOME,
    WITH_KEYS,
    WRITTEN,
    Entry,
    Ledger,
    software,
)
from foldaway.evidence.signing import digest, is_signed

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_HOUR = 13  # characters of a time, as far as its hour
FEWEST_DIGITS = 32  # of a head: with fewer, two ledgers could be made that share them


class Checked(msgspec.Struct):
    """What became of the check, in sentences.

    Attributes:
        faults: What is wrong; the certificate is good if there is nothing.
        proven: What the certificate proves, if it is good.
        stated: What those who signed it say has happened.
        unproven: What it cannot prove.
    """

    faults: list[str]
    proven: list[str] = []
    stated: list[str] = []
    unproven: list[str] = []

    @property
    def good(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults


def verify(data: bytes, heads: Sequence[str] = (), signer: str | None = None) -> Checked:
    """Check the bytes of a certificate.

    Args:
        data: The file.
        heads: Heads of its ledger that were published elsewhere: each must be that of one of its entries.
        signer: The public key that must have signed all of it.
    """
    read = read_certificate(data)
    if isinstance(read, str):
        return Checked([read])
    body, ledger = read.certificate, Ledger(read.certificate.ledger)
    faults = [*_in_file(read, data), *chain_faults(ledger), *_in_story(body, ledger)]
    for head in heads:
        if len(head) < FEWEST_DIGITS:
            faults.append(f"The head {head} is too short to compare: give at least {FEWEST_DIGITS} digits of it.")
        elif not any(entry.hash.startswith(head) for entry in ledger):
            faults.append(f"The head {head} is not in the ledger: this is not the ledger whose head was published.")
    if signer is not None and {read.key, *(entry.key for entry in ledger)} != {signer}:
        faults.append("The certificate or an entry of its ledger was signed with another key than the one you expect.")
    if faults:
        return Checked(faults)
    unproven = _unproven(read, ledger, heads, signer)
    return Checked([], list(_proven(body, ledger, heads)), list(_stated(body, ledger)), list(unproven))


def read_certificate(data: bytes) -> Certificate | str:
    """The certificate in a file; a sentence if there is none."""
    try:
        return msgspec.convert(json.loads(data), Certificate)
    except (ValueError, RecursionError):
        return "This file is damaged, or it is not a certificate of foldaway."


def _in_file(read: Certificate, data: bytes) -> Iterator[str]:
    if read.dumps() != data or not is_signed(read.key, read.signed(), read.signature):
        yield "The file was changed after it was signed: the signature does not match."
    if read.certificate.format != FORMAT:
        yield f"The certificate has another format than {FORMAT!r}; use the foldaway that made it, or a later one."
    if read.key not in {line.entry.key for line in read.certificate.ledger}:
        yield "The certificate was signed with a key that has signed no entry of the ledger."


def chain_faults(ledger: Ledger) -> Iterator[str]:
    """What is wrong with entries by themselves, and with how they follow one another."""
    times: dict[str, str] = {}
    for number, line in enumerate(ledger.lines, start=1):
        entry = line.entry
        where = f"Entry {number} of the ledger ({entry.kind})"
        if not is_signed(entry.key, entry.signed(), line.signature):
            yield f"{where} was changed: its signature does not match."
        content = KINDS.get(entry.kind)
        if content is None or not _fits(entry, content):
            yield f"{where} is not an entry that foldaway writes."
            return
        if entry.hash in times or not set(entry.previous) <= set(times):
            yield f"{where} does not follow the entries before it: one was added, removed or moved."
        if entry.kind == AUDITED and entry.content["found"] not in _SOLVED:
            yield f"{where} has no valid result."
        if not _TIME.fullmatch(entry.time):
            yield f"{where} has no valid time."
        if any(entry.time[:_HOUR] < times.get(each, "")[:_HOUR] for each in entry.previous):
            yield f"{where} has an earlier time than the entry before it."
        times[entry.hash] = entry.time
    followed = {each for entry in ledger for each in entry.previous}
    if any(entry.hash not in followed for entry in list(ledger)[:-1]):
        yield "An entry of the ledger leads nowhere: later ones were removed."


def _fits(entry: Entry, content: dict[str, type | tuple[type, ...]]) -> bool:
    fields = set(entry.content) == set(content) and all(
        isinstance(entry.content[name], kind) and not isinstance(entry.content[name], bool)
        for name, kind in content.items()
    )
    return fields and (len(entry.previous) == 2 if entry.kind == MERGED else len(entry.previous) <= 1)


def _in_story(body: Body, ledger: Ledger) -> Iterator[str]:
    """What is wrong with what happened: a step that is missing, or comes too early."""
    if not all(entry.kind in KINDS and _fits(entry, KINDS[entry.kind]) for entry in ledger):
        return  # said before
    entries = list(ledger)
    for entry in entries:
        if not entry.previous and entry.kind != REGISTERED:
            yield f"The plan was not registered first: the ledger has {entry.kind!r} before it."
        if entry.kind == REGISTERED and (entry.previous or entry.content["records"]):
            yield "The plan was registered after the first record."
        if entry.kind == REGISTERED and entry.content["fingerprint"] != digest(body.plan):
            yield "The plan in this file is not the plan that was registered."
            return
    kinds = [entry.kind for entry in entries]
    if REGISTERED not in kinds:
        yield "A step is missing: the registration of the plan."
    if set(kinds) & {KEY_IN_USE} and WRITTEN in kinds[: kinds.index(KEY_IN_USE)]:
        yield "A step is missing: a state was written, and the ledger does not say under which key."
    answered = ledger.last(ANSWERED)
    if body.effects is not None and (answered is None or answered.content["effects"] != digest(body.effects)):
        yield "The effects in this file are not the ones in the ledger."
    ended = ledger.last(ENDED)
    if ended is None:
        if body.effects is None:
            yield "A step is missing: the certificate of an open trial has effects."
        return
    if set(kinds[kinds.index(ENDED) + 1 :]) - {KEY_DESTROYED}:
        yield "The ledger goes on after the trial ended."
    if (ended.content["records"] is None) != (body.effects is None):
        yield "A step is missing: the final effects."
    tallied = max((place for place, kind in enumerate(kinds) if kind in (REGISTERED, WRITTEN, MERGED)), default=0)
    if AUDITED not in kinds[tallied:] and "release" not in json.loads(body.plan):
        yield "A step is missing: the audit of the last tallies, before the end."
    for key in ledger.keys_left():
        yield (
            f"A step is missing: the ledger does not say that key {key} was destroyed. `foldaway end STATE`, with "
            "--key if the trial had a key file of its own, destroys it; issue the certificate again after that."
        )


def _proven(body: Body, ledger: Ledger, heads: Sequence[str]) -> Iterator[str]:
    entries = list(ledger)
    yield f"Nobody has changed this file, or any of the {len(entries)} entries of its ledger, since they were signed."
    yield (
        "The plan in this file is the plan that the ledger begins with, before any record. Its fingerprint is "
        f"{digest(body.plan)}."
    )
    if body.effects is not None:
        yield "The effects in this file are the ones that the ledger names."
    if ledger.ended:
        checked = "the keys" if ledger.last(AUDITED) is None else "the audit and the keys"  # a release needs no audit
        yield f"No step is missing from the registration of the plan to the end, {checked} included."
    for head in heads:
        number, entry = next((n, e) for n, e in enumerate(entries, start=1) if e.hash.startswith(head))
        yield (
            f"Entries 1 to {number} of the ledger, up to {entry.kind!r}, existed when the head {head[:16]}… was "
            "published, if you have it from there."
        )


_EVENTS = {
    REGISTERED: "the plan was registered, with foldaway {version}.",
    KEY_IN_USE: "the secret key {key} was in use.",
    WRITTEN: "the tallies of about {records:,} records were stored.",
    MERGED: "the tallies of trials that ran apart were merged.",
    AUDITED: "the tallies were audited with simulated attacks: {solved}.",
    ANSWERED: "effects were shown to others (SHA-256 {effects:.16}…).",
    ENDED: "the trial ended{count}, and its tallies were deleted.",
    KEY_DESTROYED: "the secret key {key} was destroyed.",
}

_SOLVED = {
    NOBODY: "nobody's values could be worked out",
    WITH_KEYS: "some people's values could be worked out by whoever had the secret key and all identifiers",
    SOME: "some people's values could be worked out by whoever read the tallies in the clear (they were encrypted)",
}


def events(ledger: Ledger) -> Iterator[tuple[str, str]]:
    """When something happened, and what, in a sentence without its first capital."""
    for entry in ledger:
        solved = _SOLVED.get(entry.content.get("found", ""), "")
        count = f" with about {many(entry.content['records'], 'record')}" if entry.content.get("records") else ""
        yield _when(entry), _EVENTS[entry.kind].format(**entry.content, solved=solved, count=count)


def _when(entry: Entry) -> str:
    """The minute; of a write, of which the ledger has the hour alone, that hour."""
    day, time = entry.time[:10], entry.time[11:16]
    return f"{day}, between {time} and {int(time[:2]) + 1:02}:00" if entry.kind == WRITTEN else f"{day} {time}"


def _stated(body: Body, ledger: Ledger) -> Iterator[str]:
    yield from (f"{time}: {event}" for time, event in events(ledger))
    kept = "; ".join(f"{each.name.lower()} ({many(each.numbers, 'number')})" for each in body.existed)
    yield f"What the tallies were: {kept}."


def _unproven(read: Certificate, ledger: Ledger, heads: Sequence[str], signer: str | None) -> Iterator[str]:
    published = {entry.hash for entry in ledger for head in heads if entry.hash.startswith(head)}
    if ledger.head not in published:
        yield (
            "When all this happened. Whoever holds the signing key could have written the ledger later, with other "
            f"times. Ask where its head was published, and compare: {ledger.head} (--head)."
        )
    if ledger.last(KEY_IN_USE) is None:
        yield "That a secret key is gone: the trial had none of its own. Its server's key has encrypted the tallies."
    yield (
        "That arms were concealed. Arms from `plan.assign` are public: anybody who has the plan in this file and an "
        "identifier can compute them. Arms from `trial.assign` cannot be computed without the trial's key."
    )
    if not ledger.ended:
        yield "That anything was destroyed: the trial is still open, and its tallies and its key still exist."
    keys = sorted({read.key, *(entry.key for entry in ledger)})
    if signer is None:
        yield f"Who signed. Compare the public key with one that you know (--signer): {', '.join(keys)}."
    yield "That nobody kept a copy of records, tallies or keys outside foldaway. No certificate can prove that."
    packages = {entry.content["package"] for entry in ledger if "package" in entry.content}
    same = packages | {read.certificate.software.package} == {software()["package"]}
    whose = "the ones of this installation" if same else "not, or not always, the ones of this installation"
    yield f"That the software was not altered. By the hashes in the ledger, its files are {whose}."
