"""The certificate: a trial's plan, effects and ledger in one signed file, which can be checked without foldaway.

The file is JSON with sorted keys and a blank of indentation for each level. Plan and effects are text in it, so that
their hashes need no agreement on how a number is written.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from foldaway.evidence.ledger import Ledger, SignedEntry, now, software
from foldaway.evidence.signing import Signer, canonical

FORMAT = "foldaway certificate 1"


class Software(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which foldaway: its version, and a hash of its files."""

    version: str
    package: str


class Existed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kind of number that the trial kept while it ran."""

    name: str
    what: str
    numbers: int


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is signed.

    Attributes:
        format: `FORMAT`.
        issued: When, in UTC.
        plan: The plan in canonical form: its SHA-256 is the fingerprint.
        effects: The effects that others see, as JSON; none if too few stood behind them.
        existed: What the trial kept, by kind.
        ledger: What happened.
        software: Version and hash of the foldaway that made the certificate.
    """

    format: str
    issued: str
    plan: str
    effects: str | None
    existed: list[Existed]
    ledger: list[SignedEntry]
    software: Software


class Certificate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A body, the public key of whoever issued it, and their signature."""

    certificate: Body
    key: str
    signature: str

    def signed(self) -> bytes:
        """The bytes that are signed."""
        return canonical(msgspec.to_builtins(self.certificate))

    def dumps(self) -> bytes:
        """The bytes of the file."""
        return canonical(msgspec.to_builtins(self), indent=1) + b"\n"


def issue(
    signer: Signer, plan: str, effects: str | None, ledger: Ledger, existed: Sequence[tuple[str, str, int]]
) -> Certificate:
    """A certificate of what a ledger tells, by one of those who have signed it.

    The plan is in canonical form, the effects are as they were last told, and of every kind of number that was kept
    there are its name, its meaning and how many `existed`.
    """
    body = Body(
        format=FORMAT,
        issued=now(),
        plan=plan,
        effects=effects,
        existed=[Existed(*each) for each in existed],
        ledger=ledger.lines,
        software=Software(**software()),
    )
    unsigned = Certificate(body, signer.key, "")
    return msgspec.structs.replace(unsigned, signature=signer.sign(unsigned.signed()))
