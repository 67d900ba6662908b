"""A certificate: any change to it is found, by foldaway and by a script without it; and so is a lie."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from commands import foldaway
from evidence_of import ended, folded
from foldaway.evidence.certificate import Certificate, issue
from foldaway.evidence.ledger import (
    ANSWERED,
    AUDITED,
    ENDED,
    KEY_DESTROYED,
    KEY_IN_USE,
    REGISTERED,
    WRITTEN,
    Entry,
    Ledger,
    SignedEntry,
)
from foldaway.evidence.signing import Signer, canonical, digest
from foldaway.evidence.verifying import verify
from foldaway.keeping.saved import load
from foldaway.keeping.user_keys import user_signer
from sizes import mostly_slow

SCRIPT = Path(__file__).parents[2] / "tools" / "verify_certificate.py"
SIGNER, OTHER = Signer(bytes(32)), Signer(bytes(range(32)))


def script() -> Callable[..., list[str]]:
    spec = spec_from_file_location("verify_certificate", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    assert not any(name.startswith("foldaway") for name in vars(module))
    faults: Callable[..., list[str]] = module.faults
    return faults


independent = script()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who has no key yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    return tmp_path


def certified(file: Path, ledger: Ledger) -> Certificate:
    final = load(file).final
    assert final is not None
    return issue(user_signer(), final.plan, final.effects, ledger, [("Sums", "of each outcome", 2)])


def test_an_ended_trial_gives_a_certificate_that_both_checks_accept(home: Path) -> None:
    ledger = ended(folded(), home / "state")
    assert [entry.kind for entry in ledger] == [
        REGISTERED, KEY_IN_USE, WRITTEN, AUDITED, ANSWERED, ENDED, KEY_DESTROYED,
    ]  # fmt: skip
    data = certified(home / "state", ledger).dumps()
    checked = verify(data, [ledger.lines[0].entry.hash], user_signer().key)
    assert checked.faults == independent(data, ledger.head) == []
    assert any("up to 'plan registered'" in sentence for sentence in checked.proven)
    assert any("Ask where its head was published" in sentence for sentence in checked.unproven)
    assert not any("Ask where its head" in sentence for sentence in verify(data, [ledger.head]).unproven)
    assert "customer-" not in data.decode()


def changes(data: bytes, rng: random.Random) -> Iterator[bytes]:
    """Single changes: a bit, a byte, a digit, a letter's case, a piece cut out, doubled or exchanged."""
    while True:
        at, kind = rng.randrange(len(data)), rng.randrange(5)
        if kind == 0:
            changed = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
        elif kind == 1:
            changed = data[:at] + rng.choice([b" ", b"\n", b"0", b"f", b'"', b",", b"\\u0041"]) + data[at:]
        elif kind == 2:
            changed = data[:at] + data[at + rng.randrange(1, 40) :]
        elif kind == 3:
            changed = data[:at] + data[at : at + 1].swapcase() + data[at + 1 :]
        else:
            lines = data.splitlines(keepends=True)
            one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
            lines[one], lines[other] = lines[other], lines[one]
            changed = b"".join(lines)
        if changed != data:
            yield changed


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in items:
        yield from leaves(each, (*path, name))
    if not isinstance(value, dict | list) or not value:
        yield path


def altered(data: bytes, rng: random.Random) -> Iterator[bytes]:
    """Single values changed or removed, and the file written as it should be: only hashes and signatures can tell."""
    places = list(leaves(json.loads(data)))
    while True:
        file = json.loads(data)
        *path, name = rng.choice(places)
        inner = file
        for step in path:
            inner = inner[step]
        value = inner[name]
        if isinstance(value, str) and value and rng.random() < 0.8:
            at = rng.randrange(len(value))
            inner[name] = value[:at] + rng.choice("0123456789abcdef é") + value[at + 1 :]
        elif isinstance(value, int) and rng.random() < 0.8:
            inner[name] = value + rng.choice([-1, 1])
        else:
            del inner[name]
        changed = canonical(file, indent=1) + b"\n"
        if changed != data:
            yield changed


@pytest.mark.parametrize("count", mostly_slow([50, 500], 50))
def test_single_changes_are_all_found_by_both_checks(home: Path, count: int) -> None:
    data = certified(home / "state", ended(folded(), home / "state")).dumps()
    rng = random.Random(16)
    for _, changed, other in zip(range(count), changes(data, rng), altered(data, rng), strict=False):
        for each in (changed, other):
            assert verify(each).faults
            assert independent(each)


# Lies by whoever holds the signing key: only what the story must be gives them away.

Told = tuple[str, dict[str, Any]]


def told(plan: str, effects: str) -> list[Told]:
    about = {"version": "1", "package": "5a"}
    return [
        (REGISTERED, {"fingerprint": digest(plan), "ledger": "5a", "records": 0, **about}),
        (KEY_IN_USE, {"key": "ab"}),
        (WRITTEN, {"records": 400}),
        (AUDITED, {"attacks": ["a"], "found": "nobody"}),
        (ANSWERED, {"effects": digest(effects), "tallies": ""}),
        (ENDED, {"records": 400, **about}),
        (KEY_DESTROYED, {"key": "ab"}),
    ]


def forged(story: list[Told], effects: str | None = "{}", plan: str = "{}", signer: Signer = SIGNER) -> bytes:
    ledger = Ledger()
    for kind, content in story:
        ledger = ledger.add(SIGNER, kind, content, "2026-11-16T13:00:00Z")
    return issue(signer, plan, effects, ledger, []).dumps()


STORY = told("{}", "{}")

LIES: dict[str, tuple[bytes, str]] = {
    "records first": (forged([STORY[1], STORY[2], STORY[0], *STORY[3:]]), "registered after the first record"),
    "records before": (
        forged([(REGISTERED, STORY[0][1] | {"records": 4}), *STORY[1:]]),
        "registered after the first record",
    ),
    "another plan": (forged(STORY, plan='{"name":"other"}'), "not the plan that was registered"),
    "no registration": (forged(STORY[1:]), "missing: the registration"),
    "key too late": (forged([STORY[0], STORY[2], STORY[1], *STORY[3:]]), "under which key"),
    "no audit": (forged([*STORY[:3], *STORY[4:]]), "missing: the audit"),
    "audit of earlier tallies": (forged([*STORY[:4], STORY[2], *STORY[4:]]), "missing: the audit"),
    "other effects": (forged(STORY, effects='{"a":1}'), "not the ones in the ledger"),
    "no effects": (forged(STORY, effects=None), "missing: the final effects"),
    "effects never answered": (forged([*STORY[:4], *STORY[5:]]), "not the ones in the ledger"),
    "more after the end": (forged([*STORY, STORY[2]]), "goes on after the trial ended"),
    "key kept": (forged(STORY[:-1]), "does not say that key ab was destroyed"),
    "issued by another": (forged(STORY, signer=OTHER), "signed with a key that has signed no entry"),
}


def test_the_story_that_lies_are_told_of_is_good_itself() -> None:
    assert verify(forged(STORY)).faults == independent(forged(STORY)) == []


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_found_and_named(lie: str) -> None:
    data, sentence = LIES[lie]
    assert any(sentence in fault for fault in verify(data).faults)
    assert independent(data)


def test_a_trial_without_a_key_of_its_own_is_good_and_told_so() -> None:
    data = forged([STORY[0], *STORY[2:-1]])
    assert independent(data) == []
    assert any("the trial had none of its own" in sentence for sentence in verify(data).unproven)


def test_effects_of_a_form_that_nobody_knows_are_not_shown(home: Path) -> None:
    (home / "forged").write_bytes(forged(STORY))
    assert "The effects in it cannot be shown" in foldaway("verify", home / "forged").stdout


def test_every_entry_that_is_left_out_breaks_the_chain(home: Path) -> None:
    ledger = ended(folded(), home / "state")
    for place in range(len(ledger.lines)):
        data = certified(home / "state", Ledger(ledger.lines[:place] + ledger.lines[place + 1 :])).dumps()
        assert verify(data).faults
        assert independent(data)


def test_a_time_that_runs_backwards_is_found() -> None:
    ledger = Ledger().add(SIGNER, *STORY[0], "2026-11-16T13:00:00Z").add(SIGNER, *STORY[1], "2026-11-16T12:59:59Z")
    data = issue(SIGNER, "{}", None, ledger, []).dumps()
    assert any("has an earlier time" in fault for fault in verify(data).faults)
    assert any("is earlier" in fault for fault in independent(data))


def test_a_published_head_that_is_not_in_the_ledger_is_another_ledgers() -> None:
    data = forged(STORY)
    assert any("not the ledger whose head was published" in fault for fault in verify(data, ["5a" * 32]).faults)
    assert independent(data, "5a" * 32)
    assert any("too short" in fault for fault in verify(data, ["5a"]).faults)
    assert any("another key" in fault for fault in verify(data, signer=OTHER.key).faults)


@pytest.mark.parametrize("data", [b"", b"{}", b"[" * 100_000, b"\xff", b'{"certificate":1,"key":2,"signature":3}'])
def test_what_is_no_certificate_is_told_so(data: bytes) -> None:
    (fault,) = verify(data).faults
    assert "not a certificate" in fault
    assert independent(data)


def test_entries_of_an_unknown_kind_are_refused() -> None:
    entry = Entry("party", "2026-11-16T13:00:00Z", {}, [], SIGNER.key)
    data = issue(SIGNER, "{}", "{}", Ledger([SignedEntry(entry, SIGNER.sign(entry.signed()))]), []).dumps()
    assert any("not an entry that foldaway writes" in fault for fault in verify(data).faults)
    assert independent(data)
