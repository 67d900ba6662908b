"""The keyed numbers of records: by unit wherever a record comes, by position if there is no unit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from foldaway.numerics.kernels.siphash import hash_identifiers
from foldaway.records.keys import RecordKeys, UnitKeys
from resampling import KEY


def test_a_unit_has_the_hash_of_its_name() -> None:
    units = pa.array(["ann", "bob", "ann"])
    numbers = UnitKeys(KEY).of(units, 3)
    assert numbers.tolist() == hash_identifiers(units, KEY).tolist()
    assert numbers[0] == numbers[2] != numbers[1]


@pytest.mark.parametrize(
    "other", [pa.array(["17", "4"]), pa.array([b"17", b"4"]), pa.array(["17", "4"]).dictionary_encode()]
)
def test_a_number_and_its_text_are_the_same_unit(other: Any) -> None:
    assert UnitKeys(KEY).of(pa.array([17, 4]), 2).tolist() == UnitKeys(KEY).of(other, 2).tolist()


def test_records_are_numbered_on_from_those_before() -> None:
    whole = RecordKeys(KEY).of(None, 100)
    assert RecordKeys(KEY).of(None, 40).tolist() == whole[:40].tolist()
    assert len(set(whole.tolist())) == 100


def test_no_number_means_the_same_under_another_key() -> None:
    assert not set(RecordKeys(KEY).of(None, 1000)) & set(RecordKeys(KEY[::-1]).of(None, 1000))
    assert len(RecordKeys(KEY).of(None, 0)) == 0


def test_the_key_is_not_printed() -> None:
    for keys in (UnitKeys(KEY), RecordKeys(KEY)):
        assert not any(shown in repr(keys) for shown in (repr(KEY)[2:-1], KEY.hex(), str(list(KEY))[1:-1]))
        assert repr(keys).startswith(type(keys).__name__)


def test_numbers_are_64_bits_wide_in_both_ways() -> None:
    for numbers in (UnitKeys(KEY).of(pa.array(np.arange(2000)), 2000), RecordKeys(KEY).of(None, 2000)):
        assert numbers.dtype == np.uint64
        ones = np.unpackbits(numbers.view(np.uint8)).mean()
        assert abs(ones - 0.5) < 5 * 0.5 / np.sqrt(2000 * 64)
