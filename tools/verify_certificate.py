"""Check a certificate of foldaway without foldaway: with Python's standard library and `cryptography` alone.

    python verify_certificate.py certificate.json [published head]

It prints what is wrong, or the ledger's head, and ends with 1 if anything is wrong. Written from the description in
docs/evidence.md, and not from foldaway's own check.
"""

import hashlib
import json
import re
import sys
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

CONTENT = {
    "plan registered": {"fingerprint", "ledger", "records", "version", "package"},
    "key in use": {"key"},
    "state written": {"records"},
    "states merged": set(),
    "audited": {"attacks", "found"},
    "effects answered": {"effects", "tallies"},
    "trial ended": {"records", "version", "package"},
    "key destroyed": {"key"},
}


def compact(value: Any) -> bytes:
    """The form that is hashed and signed."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()


def sha256(data: bytes) -> str:
    """The hash, in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def signed(key: str, data: bytes, signature: str) -> bool:
    """Whether a signature is that of the data."""
    if not (re.fullmatch("[0-9a-f]{64}", key) and re.fullmatch("[0-9a-f]{128}", signature)):
        return False
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(bytes.fromhex(signature), data)
    except (InvalidSignature, ValueError):
        return False
    return True


def faults(data: bytes, head: str = "") -> list[str]:
    """Everything that is wrong with a certificate."""
    try:
        file = json.loads(data)
        return list(_faults(file, data, head))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return ["this is no certificate, or it is damaged"]


def _faults(file: dict[str, Any], data: bytes, head: str) -> Any:
    form = json.dumps(file, sort_keys=True, ensure_ascii=False, separators=(",", ": "), indent=1) + "\n"
    if form.encode() != data or set(file) != {"certificate", "key", "signature"}:
        yield "the file is not in canonical form"
    body = file["certificate"]
    if not signed(file["key"], compact(body), file["signature"]):
        yield "the certificate's signature does not match"
    lines = body["ledger"]
    hashes: list[str] = []
    named: set[str] = set()
    entries = [line["entry"] for line in lines]
    kinds = [entry["kind"] for entry in entries]
    for line, entry in zip(lines, entries, strict=True):
        if not signed(entry["key"], compact(entry), line["signature"]):
            yield f"the signature of {entry['kind']!r} does not match"
        if set(entry["content"]) != CONTENT[entry["kind"]]:
            yield f"{entry['kind']!r} has an unknown content"
        if not set(entry["previous"]) <= set(hashes):
            yield f"{entry['kind']!r} does not follow what stands before it"
        before = [entries[hashes.index(each)]["time"] for each in entry["previous"] if each in hashes]
        if any(entry["time"][:13] < time[:13] for time in before):
            yield f"{entry['kind']!r} is earlier than what stands before it"
        first = entry["kind"] == "plan registered"
        if first != (not entry["previous"]) or (first and entry["content"]["records"] != 0):
            yield "the plan was registered after the first record"
        if first and entry["content"]["fingerprint"] != sha256(body["plan"].encode()):
            yield "the plan is not the one that was registered"
        hashes.append(sha256(compact(entry)))
        named |= set(entry["previous"])
    if not entries or set(hashes[:-1]) - named or len(set(hashes)) < len(hashes):
        yield "entries are missing at the end of the ledger, or one comes twice"
    if file["key"] not in {entry["key"] for entry in entries}:
        yield "whoever signed the certificate has signed no entry of its ledger"
    if head and not any(each.startswith(head) for each in hashes):
        yield "the published head is not in the ledger"

    answers = [entry["content"]["effects"] for entry in entries if entry["kind"] == "effects answered"]
    if body["effects"] is not None and answers[-1:] != [sha256(body["effects"].encode())]:
        yield "the effects are not the ones in the ledger"
    marks = {
        kind: {entry["content"]["key"] for entry in entries if entry["kind"] == kind}
        for kind in ("key in use", "key destroyed")
    }
    if "key in use" in kinds and "state written" in kinds[: kinds.index("key in use")]:
        yield "a state was written before its key was noted"
    if "trial ended" not in kinds:
        return
    end = kinds.index("trial ended")
    if set(kinds[end + 1 :]) - {"key destroyed"}:
        yield "the ledger goes on after the end"
    if (entries[end]["content"]["records"] is None) != (body["effects"] is None):
        yield "the final effects are missing"
    changing = ("plan registered", "state written", "states merged")
    last = max((place for place, kind in enumerate(kinds) if kind in changing), default=0)
    if "audited" not in kinds[last:] and "release" not in json.loads(body["plan"]):
        yield "the audit is missing"
    if marks["key in use"] - marks["key destroyed"]:
        yield "a key was not destroyed"


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as opened:
        content = opened.read()
    found = faults(content, *sys.argv[2:3])
    for sentence in found:
        print("WRONG:", sentence)
    if not found:
        body = json.loads(content)["certificate"]
        print("valid; head of the ledger:", sha256(compact(body["ledger"][-1]["entry"])))
    sys.exit(bool(found))
