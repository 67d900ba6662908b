"""Tokens: told once, kept as a hash, compared in the same time whatever is wrong with them."""

from __future__ import annotations

import hashlib
import hmac
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldaway.service.keys.tokens import Scope, TokenRow, allows, id_of, issue, verify


def test_a_token_has_a_public_part_and_a_secret_one() -> None:
    row, text = issue("ingest", "checkout")
    found = re.fullmatch(r"fa_([0-9a-f]{16})_([A-Za-z0-9_-]{43})", text)
    assert found is not None
    assert id_of(text) == row.id == found[1]
    assert row.hash == hashlib.sha256(found[2].encode()).digest()
    assert (row.scope, row.trial, row.revoked) == ("ingest", "checkout", False)
    assert found[2] not in repr(row)
    assert len({issue("admin")[1] for _ in range(100)}) == 100


def test_only_its_own_text_is_a_rows_token() -> None:
    row, text = issue("admin")
    other_row, other = issue("admin")
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
    row, text = issue("admin")
    revoked = msgspec.structs.replace(row, revoked=True)
    for attempt, kept in ((text, row), (text, None), (text, revoked), ("", row), ("", None), (text[:-1] + "?", row)):
        compared.clear()
        verify(attempt, kept)
        assert compared == [16, 32]


@pytest.mark.parametrize(
    ("scope", "trial", "good_for"),
    [
        ("admin", None, {("admin", None), ("ingest", "a"), ("read", "a"), ("ingest", "b"), ("read", "b")}),
        ("ingest", "a", {("ingest", "a")}),
        ("read", "b", {("read", "b")}),
    ],
)
def test_a_scope_is_for_what_it_says(scope: Scope, trial: str | None, good_for: set[tuple[Scope, str | None]]) -> None:
    row, _ = issue(scope, trial)
    asked: list[tuple[Scope, str | None]] = [("admin", None), ("ingest", None), ("read", None), ("admin", "a")]
    asked += [("ingest", "a"), ("read", "a"), ("ingest", "b"), ("read", "b")]
    allowed = {wish for wish in asked if allows(row, *wish)}
    assert allowed - {("ingest", None), ("read", None), ("admin", "a")} == good_for
    assert scope == "admin" or allowed == good_for


@pytest.mark.parametrize(("scope", "trial"), [("admin", "a"), ("metrics", "a"), ("ingest", None), ("read", None)])
def test_admin_is_for_all_trials_and_the_others_for_one(scope: Scope, trial: str | None) -> None:
    with pytest.raises(ValueError, match="for one trial"):
        issue(scope, trial)


@pytest.mark.parametrize("text", ["", "fa_", "fa_0123456789abcdeF_" + "a" * 43, "fb_" + "0" * 16 + "_" + "a" * 43])
def test_what_is_no_token_has_no_id(text: str) -> None:
    assert id_of(text) is None


ROW, _ = issue("admin")
