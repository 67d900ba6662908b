"""The key: what is made from it, and that nothing is left of it."""

from __future__ import annotations

from operator import methodcaller

import pytest

from foldaway.errors import EndedError, FoldawayError, PlanError
from foldaway.keeping.secret import LENGTH, Secret
from resampling import KEY

OF_UNITS = methodcaller("of_units", "the plan's fingerprint")


def test_a_key_is_new_unless_it_is_given() -> None:
    assert Secret().reveal() != Secret().reveal()
    assert len(Secret().reveal()) == LENGTH == 16
    assert Secret(KEY).reveal() == KEY
    assert Secret(bytearray(KEY)).reveal() == KEY


@pytest.mark.parametrize("key", [b"", KEY[:15], KEY + b"x", KEY * 2, KEY.hex(), "sixteen letters!", 17, [1] * 16])
def test_what_is_not_16_bytes_is_no_key(key: object) -> None:
    with pytest.raises(PlanError, match="a key is 16 bytes") as refused:
        Secret(key)  # type: ignore[arg-type]
    assert repr(key) not in str(refused.value)
    assert isinstance(refused.value, FoldawayError)


def test_what_is_made_of_a_key_is_a_function_of_it_and_of_the_purpose() -> None:
    def made(secret: Secret) -> list[bytes]:
        units = [secret.of_units(plan) for plan in ("one", "two")]
        shards = [secret.of_shard(shard) for shard in (b"one", b"two")]
        return [*units, *shards, secret.of_groups(), secret.of_files(), secret.mark(), secret.reveal()]

    assert made(Secret(KEY)) == made(Secret(KEY))
    both = made(Secret(KEY)) + made(Secret(KEY[::-1]))
    assert len(set(both)) == len(both)
    assert [len(part) for part in made(Secret(KEY))] == [16, 16, 16, 16, 16, 32, 8, 16]
    assert not any(one[:8] == other[:8] for i, one in enumerate(both) for other in both[:i])


def test_one_bit_of_the_key_changes_half_the_bits_of_all_that_is_made_of_it() -> None:
    near = bytes([KEY[0] ^ 1]) + KEY[1:]
    for make in (OF_UNITS, Secret.of_groups, Secret.of_files, Secret.mark, lambda secret: secret.of_shard(b"")):
        one, other = (int.from_bytes(make(Secret(key)), "big") for key in (KEY, near))
        bits = 8 * len(make(Secret(KEY)))
        assert 0.25 * bits < (one ^ other).bit_count() < 0.75 * bits


def test_a_destroyed_key_is_overwritten_and_answers_nothing() -> None:
    secret = Secret(KEY)
    buffer = secret._key
    assert bytes(buffer) == KEY
    held = [secret.held]
    secret.destroy()
    held.append(secret.held)
    assert bytes(buffer) == bytes(LENGTH)
    assert held == [True, False]
    for ask in (Secret.reveal, Secret.mark, Secret.of_groups, Secret.of_files, OF_UNITS):
        with pytest.raises(EndedError, match="destroyed"):
            ask(secret)
    secret.destroy()  # once more does no harm


def test_the_key_given_is_not_the_one_destroyed() -> None:
    given = bytearray(KEY)
    Secret(given).destroy()
    assert given == KEY


def test_a_secret_does_not_print_its_key() -> None:
    secret = Secret(KEY)
    assert repr(secret) == str(secret) == "Secret: held"
    secret.destroy()
    assert repr(secret) == "Secret: destroyed"
