"""Tokens: told once, kept as a hash, compared in the same time whatever is wrong with them."""

from __future__ import annotations

import hashlib
import hmac
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldaway.service.keys.rules import allows, may_issue
from foldaway.service.keys.tokens import Scope, TokenRow, Wanted, id_of, issue, verify


def test_a_token_has_a_public_part_and_a_secret_one() -> None:
    row, text = issue(Wanted("ingest", "checkout"))
    found = re.fullmatch(r"fa_([0-9a-f]{16})_([A-Za-z0-9_-]{43})", text)
    assert found is not None
    assert id_of(text) == row.id == found[1]
    assert row.hash == hashlib.sha256(found[2].encode()).digest()
    assert (row.scope, row.trial, row.revoked) == ("ingest", "checkout", False)
    assert found[2] not in repr(row)
    assert len({issue(Wanted("admin"))[1] for _ in range(100)}) == 100


def test_only_its_own_text_is_a_rows_token() -> None:
    row, text = issue(Wanted("admin"))
    other_row, other = issue(Wanted("admin"))
    assert verify(text, row)
    assert not verify(text, other_row)
    assert not verify(text, None)
    assert not verify(text, msgspec.structs.replace(row, revoked=True))
    head, secret = text[:20], text[20:]
    wrong = [head + other[20:], other[:20] + secret, head + secret[:-1], text + "A", " " + text, text + "\n", secret]
    wrong += [head + secret.swapcase(), text.upper(), "", "fa__", "fa_" + row.id, row.hash.hex(), head + "ü" * 43]
    assert not any(verify(attempt, row) for attempt in wrong)


@given(text=st.text(max_size=80) | st.from_regex(r"fa_[0-9a-f]{16}_[A-Za-z0-9_-]{43}", fullmatch=True))
def test_no_other_text_opens_anything(text: str) -> None:
    assert not verify(text, ROW)
    assert not verify(text, None)


def test_nobodys_token_is_nobodys() -> None:
    nobody = "fa_" + "0" * 16 + "_" + "0" * 43
    assert not verify(nobody, None)
    empty = TokenRow("0" * 16, bytes(32), "admin", None, 0.0)
    assert not verify(nobody, empty)
    assert not verify("", empty)
    # Even if someone had that secret, a text that is no token is none.
    kept = TokenRow("0" * 16, hashlib.sha256(b"0" * 43).digest(), "admin", None, 0.0)
    assert not verify("", kept)
    assert verify(nobody, kept)


def test_every_attempt_takes_the_same_path(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    real = hmac.compare_digest

    def counting(one: bytes | str, other: bytes | str) -> bool:
        compared.append(len(one))
        assert len(one) == len(other)
        return real(one, other)  # type: ignore[arg-type]

    monkeypatch.setattr(hmac, "compare_digest", counting)
    row, text = issue(Wanted("admin"))
    revoked = msgspec.structs.replace(row, revoked=True)
    for attempt, kept in ((text, row), (text, None), (text, revoked), ("", row), ("", None), (text[:-1] + "?", row)):
        compared.clear()
        verify(attempt, kept)
        assert compared == [16, 32]


OF_TRIALS: list[tuple[Scope, str]] = [
    (scope, trial) for scope in ("team", "ingest", "site", "read") for trial in ("a", "b", "c")
]
TEAMS = {"a": "red", "b": "blue", "c": None}


@pytest.mark.parametrize(
    ("wanted", "good_for"),
    [
        (Wanted("admin"), set(OF_TRIALS)),
        (Wanted("team", team="red"), {("team", "a"), ("read", "a")}),
        (Wanted("ingest", "a"), {("ingest", "a")}),
        (Wanted("site", "a", units=1), {("site", "a")}),
        (Wanted("read", "b"), {("read", "b")}),
        (Wanted("metrics"), set[tuple[Scope, str]]()),
    ],
)
def test_a_scope_is_for_what_it_says(wanted: Wanted, good_for: set[tuple[Scope, str]]) -> None:
    row, _ = issue(wanted)
    assert {(scope, trial) for scope, trial in OF_TRIALS if allows(row, scope, trial, TEAMS[trial])} == good_for
    # Whole servers: admin and metrics; what a team does before there is a trial.
    assert allows(row, "admin") == (row.scope == "admin")
    assert allows(row, "metrics") == (row.scope in ("admin", "metrics"))
    assert allows(row, "team") == (row.scope in ("admin", "team"))
    assert may_issue(row, "team") == (row.scope == "admin")
    assert may_issue(row, "read") == (row.scope in ("admin", "team"))


@pytest.mark.parametrize(
    "wanted",
    [
        Wanted("admin", "a"),
        Wanted("metrics", "a"),
        Wanted("ingest"),
        Wanted("read"),
        Wanted("read", "a", units=1),
        Wanted("site", "a"),
        Wanted("team"),
        Wanted("admin", team="red"),
        Wanted("admin", label="two\nlines"),
    ],
)
def test_a_token_is_for_what_its_scope_needs_and_no_more(wanted: Wanted) -> None:
    with pytest.raises(ValueError, match=r"^`(trial|units|team|label)`"):
        issue(wanted)


def test_a_token_is_good_until_it_expires() -> None:
    row, text = issue(Wanted("admin", expires_in=3600))
    assert verify(text, row)
    assert row.expires is not None
    late = msgspec.structs.replace(row, expires=row.expires - 3600)
    assert not verify(text, late)
    assert late.status == "expired"
    assert msgspec.structs.replace(late, revoked=True).status == "revoked"


@pytest.mark.parametrize("text", ["", "fa_", "fa_0123456789abcdeF_" + "a" * 43, "fb_" + "0" * 16 + "_" + "a" * 43])
def test_what_is_no_token_has_no_id(text: str) -> None:
    assert id_of(text) is None


ROW, _ = issue(Wanted("admin"))
