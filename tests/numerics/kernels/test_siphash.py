from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldaway.errors import RecordError
from foldaway.numerics.kernels.siphash import hash_identifiers

KEY = bytes(range(16))

# vectors_sip64 of the reference implementation (github.com/veorq/SipHash), messages of 0 to 15 octets 00 01 02 …; the
# last is the example worked out in the paper's appendix A.
PUBLISHED = [
    "310e0edd47db6f72",
    "fd67dc93c539f874",
    "5a4fa9d909806c0d",
    "2d7efbd796666785",
    "b7877127e09427cf",
    "8da699cd64557618",
    "cee3fe586e46c9cb",
    "37d1018bf50002ab",
    "6224939a79f5f593",
    "b0e4a90bdf82009e",
    "f3b9dd94c5bb5d7a",
    "a7ad6b22462fb3f4",
    "fbe50e86bc8f1e75",
    "903d84c02756ea14",
    "eef27a8e90ca23f7",
    "e545be4961ca29a1",
]


def slow_siphash(message: bytes, key: bytes) -> int:
    """SipHash-2-4 from the paper's section 2, on Python integers."""
    whole = 2**64 - 1

    def turn(x: int, by: int) -> int:
        return (x << by | x >> (64 - by)) & whole

    k0, k1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def mix() -> None:
        for a, b, by, c, d, by_other in ((0, 1, 13, 2, 3, 16), (2, 1, 17, 0, 3, 21)):
            v[a] = (v[a] + v[b]) & whole
            v[c] = (v[c] + v[d]) & whole
            v[b] = turn(v[b], by) ^ v[a]
            v[d] = turn(v[d], by_other) ^ v[c]
            v[a] = turn(v[a], 32)

    padded = message + bytes(7 - len(message) % 8) + bytes([len(message) % 256])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        mix()
        mix()
        v[0] ^= word
    v[2] ^= 0xFF
    for _ in range(4):
        mix()
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def slowly(messages: list[bytes], key: bytes = KEY) -> list[int]:
    return [slow_siphash(message, key) for message in messages]


def test_published_vectors() -> None:
    messages = pa.array([bytes(range(length)) for length in range(16)])
    hashes = hash_identifiers(messages, KEY)
    assert [int(h).to_bytes(8, "little").hex() for h in hashes] == PUBLISHED


def test_the_slow_one_gives_the_published_vectors_too() -> None:
    hashes = slowly([bytes(range(length)) for length in range(16)])
    assert [h.to_bytes(8, "little").hex() for h in hashes] == PUBLISHED


@given(messages=st.lists(st.binary(max_size=70)), key=st.binary(min_size=16, max_size=16))
@settings(deadline=None, max_examples=60)
def test_any_octets_under_any_key(messages: list[bytes], key: bytes) -> None:
    assert hash_identifiers(pa.array(messages, pa.binary()), key).tolist() == slowly(messages, key)


def test_a_message_longer_than_its_length_octet_can_count() -> None:
    messages = [b"x" * length for length in (255, 256, 257, 1000)]
    assert hash_identifiers(pa.array(messages), KEY).tolist() == slowly(messages)


TEXTS = ["", "a", "user-17", "user-018", "Zoë", "exactly 16 bytes", "and seventeen: 17", "a" * 40]
SAME_LENGTH = [b"0123456789ab", b"0123456789ac", b"zzzzzzzzzzzz"]


def columns() -> dict[str, tuple[Any, list[bytes]]]:
    octets = [text.encode() for text in TEXTS]
    return {
        "string": (pa.array(TEXTS), octets),
        "large_string": (pa.array(TEXTS, pa.large_string()), octets),
        "binary": (pa.array(octets), octets),
        "large_binary": (pa.array(octets, pa.large_binary()), octets),
        "fixed_size_binary": (pa.array(SAME_LENGTH, pa.binary(12)), SAME_LENGTH),
        "dictionary": (pa.array([*TEXTS, *TEXTS]).dictionary_encode(), [*octets, *octets]),
        "large dictionary": (pa.array(TEXTS, pa.large_string()).dictionary_encode(), octets),
        "dictionary of integers": (pa.array([5, -7, 5]).dictionary_encode(), [b"5", b"-7", b"5"]),
        **{
            str(kind): (pa.array(numbers, kind), [str(number).encode() for number in numbers])
            for kind, numbers in (
                (pa.int8(), [-128, -1, 0, 1, 127]),
                (pa.int16(), [-(2**15), 999, 1000]),
                (pa.int32(), [-(2**31), 99_999_999, 100_000_000]),
                (pa.int64(), [-(2**63), -(10**15), -(10**7), 10**16 - 1, 10**16, 2**63 - 1]),
                (pa.uint8(), [0, 255]),
                (pa.uint16(), [9, 10, 65535]),
                (pa.uint32(), [2**32 - 1]),
                (pa.uint64(), [0, 10**19, 2**63, 2**64 - 1]),
            )
        },
    }


@pytest.mark.parametrize("name", columns())
def test_every_type_is_its_octets(name: str) -> None:
    column, octets = columns()[name]
    assert hash_identifiers(column, KEY).tolist() == slowly(octets)


@pytest.mark.parametrize("name", columns())
def test_a_slice_hashes_to_the_slice(name: str) -> None:
    column, octets = columns()[name]
    for first in range(len(octets) + 1):
        for length in range(len(octets) - first + 1):
            assert hash_identifiers(column.slice(first, length), KEY).tolist() == slowly(octets[first : first + length])


@given(numbers=st.lists(st.integers(-(2**63), 2**63 - 1)))
@settings(deadline=None, max_examples=60)
def test_an_integer_is_its_decimal_text(numbers: list[int]) -> None:
    texts = pa.array([str(number) for number in numbers], pa.string())
    assert (hash_identifiers(pa.array(numbers, pa.int64()), KEY) == hash_identifiers(texts, KEY)).all()


def test_integers_of_every_length_are_their_decimal_text() -> None:
    numbers = [sign * (10**digits + step) for digits in range(19) for step in (-1, 0, 1) for sign in (1, -1)]
    texts = pa.array([str(number) for number in numbers])
    assert (hash_identifiers(pa.array(numbers, pa.int64()), KEY) == hash_identifiers(texts, KEY)).all()


@pytest.mark.parametrize("most", [9, 10**7 - 1, 10**7], ids=["one digit", "short", "one is longer"])
def test_blocks_of_short_integers_are_their_decimal_text(most: int) -> None:
    numbers = [*(number % (most + 1) for number in range(0, 30_000_000, 9_973)), most]
    texts = pa.array([str(number) for number in numbers])
    np.testing.assert_array_equal(hash_identifiers(pa.array(numbers), KEY), hash_identifiers(texts, KEY))


def test_a_buffer_without_padding() -> None:
    for text in (b"abc", b"abcdefgh", b"abcdefghijk"):
        offsets = pa.py_buffer(np.array([0, len(text)], dtype=np.int32))
        column = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(text)])
        assert hash_identifiers(column, KEY).tolist() == slowly([text])


def test_nothing_gives_nothing() -> None:
    for kind in (pa.string(), pa.int64(), pa.binary(3), pa.null(), pa.dictionary(pa.int8(), pa.string())):
        assert hash_identifiers(pa.array([], kind), KEY).shape == (0,)


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["secret-person", None]),
        pa.array([8675309, None]),
        pa.array(["secret-person", None]).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["secret-person", None])),
        pa.nulls(1),
    ],
)
def test_a_missing_identifier_is_refused_without_naming_any(column: pa.Array) -> None:
    with pytest.raises(RecordError, match="1 missing") as refusal:
        hash_identifiers(column, KEY)
    assert "secret" not in str(refusal.value)
    assert "8675309" not in str(refusal.value)


def test_a_null_in_a_dictionary_that_no_row_uses_is_nothing() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.array(["a", None]))
    assert hash_identifiers(column, KEY).tolist() == slowly([b"a", b"a"])


def test_other_types_are_refused_by_name() -> None:
    with pytest.raises(RecordError, match="double"):
        hash_identifiers(pa.array([17.0]), KEY)


@pytest.mark.parametrize("length", [0, 15, 17])
def test_a_key_has_sixteen_octets(length: int) -> None:
    with pytest.raises(ValueError, match="16 octets"):
        hash_identifiers(pa.array(["a"]), bytes(length))


def test_every_bit_of_the_key_turns_half_the_bits_of_the_hash() -> None:
    column = pa.array([f"user-{i:07}" for i in range(500)])
    plain = hash_identifiers(column, KEY)
    for bit in range(128):
        turned = (int.from_bytes(KEY, "little") ^ 1 << bit).to_bytes(16, "little")
        share = np.bitwise_count(hash_identifiers(column, turned) ^ plain).mean() / 64
        assert abs(share - 0.5) < 4.5 * 0.5 / np.sqrt(64 * 500)


def test_no_object_is_made_of_any_identifier() -> None:
    column = pa.array(np.arange(200_000)).cast(pa.string())
    hash_identifiers(column, KEY)
    tracemalloc.start()
    try:
        hashes = hash_identifiers(column, KEY)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.1 * hashes.nbytes
