"""Groups by SHA-256: the same from every type and batch, and from anybody's SHA-256."""

from hashlib import sha256

import numpy as np
import pyarrow as pa
import pytest

import foldaway as fa
from foldaway.keeping.secret import Secret
from foldaway.records.sha256 import sha256_identifiers
from foldaway.tallies.sums import group_of

PLAN = fa.Plan(name="demo", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], unit="who", hash="sha256")
KEY = bytes(range(16))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([17, 4, 17], pa.int16()),
        pa.array([17, 4, 17], pa.uint64()),
        pa.array(["17", "4", "17"]),
        pa.array([b"17", b"4", b"17"], pa.large_binary()),
        pa.array(["17", "4", "17"]).dictionary_encode(),
        pa.DictionaryArray.from_arrays([0, 1, 2], pa.array(["17", "4", "17"])),
        pa.array(["x", "17", "4", "17"])[1:],
    ],
    ids=lambda column: str(column.type),
)
def test_every_type_has_the_group_that_sha256_gives(column: pa.Array) -> None:
    hashes = sha256_identifiers(column, b"key")
    for groups in (1, 16, 128, 4096):
        expected = [int(sha256(f"key{name}".encode()).hexdigest()[:3], 16) % groups for name in (17, 4, 17)]
        assert group_of(hashes, groups).tolist() == expected


def test_numbers_tell_units_apart() -> None:
    hashes = sha256_identifiers(pa.array(np.arange(20_000)), b"key")
    assert len(np.unique(hashes)) == 20_000


def test_records_are_dealt_by_the_group_key() -> None:
    trial = fa.Trial(PLAN, key=KEY)
    trial.fold({"g": ["a", "b", "b"], "y": [1.0, 2.0, 3.0], "who": ["x", "é", 'a "b\\']})
    key = Secret(KEY).of_warehouse().decode()
    assert len(key) == 32
    groups = [int(sha256(f"{key}{name}".encode()).hexdigest()[:3], 16) % 128 for name in ("x", "é", 'a "b\\')]
    totals = trial.tallies.plain().totals(0)  # type: ignore[union-attr]
    assert [totals[arm, group] for arm, group in zip((0, 1, 1), groups, strict=True)] == [1.0, 2.0, 3.0]


def test_the_group_key_is_of_no_other_use() -> None:
    secret = Secret(KEY)
    assert secret.of_warehouse() not in {secret.of_groups(), secret.of_groups().hex().encode(), KEY.hex().encode()}


def test_batches_and_types_make_no_difference() -> None:
    rng = np.random.default_rng(1)
    who, y, g = rng.integers(0, 50, 400), rng.normal(size=400), rng.choice(["a", "b"], 400)
    whole, parts = fa.Trial(PLAN, key=KEY), fa.Trial(PLAN, key=KEY)
    whole.fold({"g": g, "y": y, "who": who})
    for start in range(0, 400, 77):
        part = np.s_[start : start + 77]
        parts.fold({"g": g[part], "y": y[part], "who": who[part].astype(str)})
    one, two = (each.effects().to_dicts() for each in (whole, parts))
    for left, right in zip(one, two, strict=True):
        assert left["estimate"] == pytest.approx(right["estimate"], rel=1e-9)
        assert left["std_error"] == pytest.approx(right["std_error"], rel=1e-9)


def test_ways_to_deal_are_not_mixed() -> None:
    other = fa.Plan.of({**PLAN.settings(), "hash": "siphash"})
    with pytest.raises(fa.StateError, match="`hash`"):
        fa.Trial(PLAN, key=KEY).merge(fa.Trial(other, key=KEY))
