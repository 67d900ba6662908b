"""States that are damaged, foreign or made up: refused with a StateError, or what comes back is what went in."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import struct
import time
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import foldaway as fa
from foldaway.keeping.state import MAGIC, VERSION, Array, pack, unpack
from fuzzing import fuzz
from trials import folded, make_trial

pytestmark = pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")

BODY = len(MAGIC) + 2 + 32  # magic, version and checksum come before


@cache
def sample() -> fa.Trial:
    """A small trial with everything in it that a state can hold."""
    plan, rows = make_trial(41, n=60, arms=2, outcomes=2, covariates=1, units=True)
    plan = msgspec.structs.replace(plan, drop_limit=0.05)
    rows.loc[[3, 5, 8], "y0"] = np.nan
    rows.loc[[4], "group"] = "elsewhere"
    return folded(plan, rows)


@cache
def state() -> bytes:
    return sample().dumps()


def body() -> Any:
    """The sample's state as plain lists and dicts, to be tampered with."""
    return deepcopy(msgspec.msgpack.decode(state()[BODY:]))


def sealed(encoded: bytes) -> bytes:
    """These bytes with a header that is right for them."""
    return b"".join((MAGIC, VERSION.to_bytes(2, "little"), hashlib.sha256(encoded).digest(), encoded))


def check(data: bytes, plan: fa.Plan | None = None) -> fa.Trial | None:
    """The law of loading: a StateError, or a trial with these very bytes for its state."""
    try:
        trial = fa.Trial.loads(data, plan)
    except fa.StateError:
        return None
    assert trial.dumps() == data
    return trial


def check_refused(data: Any, match: str | None = None) -> None:
    with pytest.raises(fa.StateError, match=match):
        fa.Trial.loads(data)


# Good states.


def test_a_state_comes_back_with_its_plan_and_without() -> None:
    trial = sample()
    assert trial.dropped.total == 4
    for back in (fa.Trial.loads(state()), fa.Trial.loads(state(), trial.plan)):
        assert back.dumps() == state()
        assert back.plan == trial.plan
        assert back.counts == trial.counts
        assert back.dropped == trial.dropped
        assert back.effects().to_dicts() == trial.effects().to_dicts()


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_kind_of_bytes_will_do(kind: Callable[[bytes], Any]) -> None:
    assert fa.Trial.loads(kind(state())).dumps() == state()


def test_the_tests_own_seal_is_the_real_one() -> None:
    assert sealed(state()[BODY:]) == state()
    assert pack(body()) == state()


def test_no_record_and_no_identifier_is_in_a_state() -> None:
    plan, rows = make_trial(42, n=1200, units=True)
    data = folded(msgspec.structs.replace(plan, expected_units=320), rows).dumps()  # no cell of a single record
    assert b"unit-" not in data
    for value in rows["y0"]:
        assert struct.pack("<d", value) not in data


def test_a_file_is_replaced_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "trial.state"
    fa.Trial(sample().plan).save(path)
    sample().save(path)
    assert fa.Trial.load(path).dumps() == state()
    assert [p.name for p in tmp_path.iterdir()] == ["trial.state"]


@pytest.mark.parametrize("name", ["missing.state", "."])
def test_a_file_that_cannot_be_read_is_a_state_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(fa.StateError, match="cannot read"):
        fa.Trial.load(tmp_path / name)


# Damage.


def test_every_truncation_is_refused() -> None:
    for length in range(len(state())):
        check_refused(state()[:length])


@fuzz(max_examples=80)
@given(st.data())
def test_every_flipped_bit_is_refused(data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(state()) - 1))
    damaged = bytearray(state())
    damaged[place] ^= 1 << data.draw(st.integers(0, 7))
    check_refused(bytes(damaged))


@fuzz(max_examples=50)
@given(st.binary(min_size=1, max_size=64), st.integers(0, 10_000))
def test_every_extension_is_refused(more: bytes, place: int) -> None:
    place = min(place, len(state()))
    longer = state()[:place] + more + state()[place:]
    if longer != state():
        check_refused(longer)
    check_refused(state() + more)


@fuzz(max_examples=100)
@given(st.binary(max_size=200))
@example(b"")
@example(MAGIC)
def test_noise_is_refused(noise: bytes) -> None:
    check_refused(noise)
    check_refused(MAGIC + noise)
    check_refused(sealed(noise))


@pytest.mark.parametrize("data", ["text", None, 17, [1, 2], {"plan": 1}], ids=repr)
def test_what_is_not_bytes_is_refused(data: Any) -> None:
    check_refused(data, "a state is bytes")


@pytest.mark.parametrize("version", [0, 2, 255, 65535])
def test_other_formats_are_refused_by_their_number(version: int) -> None:
    check_refused(MAGIC + version.to_bytes(2, "little") + state()[len(MAGIC) + 2 :], f"format {version};")


def test_a_wrong_checksum_is_refused() -> None:
    check_refused(state()[: len(MAGIC) + 2] + bytes(32) + state()[BODY:], "checksum")


def test_a_state_of_another_plan_is_refused() -> None:
    plan = sample().plan
    others = [
        msgspec.structs.replace(plan, name="other"),
        msgspec.structs.replace(plan, confidence=0.9),
        msgspec.structs.replace(plan, outcomes=plan.outcomes[:1]),
        msgspec.structs.replace(plan, outcomes=plan.outcomes[::-1]),
    ]
    for other in others:
        with pytest.raises(fa.StateError, match="another plan"):
            fa.Trial.loads(state(), other)
        with pytest.raises(fa.StateError, match="plans differ"):
            sample().merge(fa.Trial(other))


# Bodies that are whole and make no sense, under a right checksum.


def places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in nested lists and dicts."""
    found = [path] if path else []
    if isinstance(tree, dict):
        for key, value in tree.items():
            found += places(value, (*path, key))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            found += places(value, (*path, index))
    return found


def holder(tree: Any, path: tuple[Any, ...]) -> Any:
    for step in path[:-1]:
        tree = tree[step]
    return tree


def changed(path: tuple[Any, ...], change: Callable[[Any], Any]) -> bytes:
    tree = body()
    at = holder(tree, path)
    at[path[-1]] = change(at[path[-1]])
    return sealed(msgspec.msgpack.encode(tree))


def doubles(data: bytes, change: Callable[[Any], None]) -> bytes:
    values = np.frombuffer(data, dtype="<f8").copy()
    change(values)
    return values.tobytes()


numbers = st.sampled_from([-1, 0, 1, 2, 59, 60, 61, 2**31, 2**62, 2**63, 2**64 - 1, -(2**63)])
floats = st.sampled_from([0.0, -0.0, 1e-320, 1e-300, 1.0, -1.0, 1e154, 1.7e308, np.inf, -np.inf, np.nan])
anything = st.recursive(
    st.none() | st.booleans() | numbers | floats | st.text(max_size=8) | st.binary(max_size=16),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4) | numbers, inner, max_size=3),
    max_leaves=6,
)


@fuzz(max_examples=80)
@given(st.data())
def test_anything_anywhere_is_refused_or_comes_back(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(places(body())))
    value = data.draw(anything)
    check(changed(path, lambda _: value))


@fuzz(max_examples=50)
@given(st.data())
def test_numbers_changed_within_arrays_are_refused_or_come_back(data: st.DataObject) -> None:
    paths = [path for path in places(body()) if isinstance(holder(body(), path)[path[-1]], bytes)]
    path = data.draw(st.sampled_from(paths))
    at, value = data.draw(st.integers(0, 10_000)), data.draw(floats)

    def change(values: Any) -> None:
        if len(values):
            values[at % len(values)] = value

    check(changed(path, lambda old: doubles(old, change) if len(old) % 8 == 0 else old[::-1]))


@fuzz(max_examples=60)
@given(st.data())
def test_parts_left_out_repeated_or_exchanged_are_refused_or_come_back(data: st.DataObject) -> None:
    tree = body()
    path = data.draw(st.sampled_from(places(tree)))
    at = holder(tree, path)
    action = data.draw(st.sampled_from(["leave out", "repeat", "exchange", "reverse"]))
    if action == "exchange":
        other = data.draw(st.sampled_from(places(tree)))
        here, there = at[path[-1]], holder(tree, other)[other[-1]]
        at[path[-1]] = deepcopy(there)
        if path != other[: len(path)]:
            holder(tree, other)[other[-1]] = deepcopy(here)
    elif action == "leave out":
        del at[path[-1]]
    elif isinstance(at, list):
        if action == "repeat":
            at.insert(path[-1], deepcopy(at[path[-1]]))
        else:
            at.reverse()
    else:
        items = list(at.items())
        at.clear()
        at.update(items[::-1])
        if action == "repeat":
            at[f"{path[-1]} again"] = items[0][1]
    check(sealed(msgspec.msgpack.encode(tree)))


@fuzz(max_examples=80)
@given(st.data())
def test_damaged_bodies_under_a_right_checksum_are_refused_or_come_back(data: st.DataObject) -> None:
    damaged = bytearray(state()[BODY:])
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del damaged[data.draw(st.integers(0, len(damaged) - 1)) :]
    check(sealed(bytes(damaged)))


@fuzz(max_examples=75)
@given(st.text(max_size=60) | st.binary(max_size=40).map(lambda noise: noise.decode("latin-1")))
@example("")
@example("{")
@example("[]")
@example("{}")
@example('{"name": 1}')
@example("name = 1")
@example("x = " + "9" * 5000)
@example('{"name": ' + "9" * 5000 + "}")
@example("[" * 5000)
@example('{"a":' * 5000)
@example("a." * 5000 + "a = 1")
def test_a_plan_that_is_none_is_refused(text: str) -> None:
    check_refused(changed(("plan",), lambda _: text), "plan")


def twice(values: list[Any]) -> list[Any]:
    return [*values, values[0]]


def split(values: list[Any]) -> list[Any]:
    """The first fault in two parts, which add up to the same."""
    *name, count = values[0]
    return [[*name, count - 1], [*name, 1], *values[1:]]


MADE_UP: dict[str, tuple[tuple[Any, ...], Callable[[Any], Any]]] = {
    "a plan with spaces": (("plan",), lambda plan: plan + " "),
    "a plan in TOML": (("plan",), lambda plan: fa.Plan.loads(plan).to_toml()),
    "a field more in an arm": (("tallies", "arms", 0), lambda arm: {**arm, "more": 0}),
    "a field more in a factor": (("tallies", "arms", 0, "factor"), lambda factor: [*factor, 0]),
    "a field more in an array": (("tallies", "arms", 0, "frame"), lambda array: [*array, 0]),
    "a fault twice": (("faults",), twice),
    "a fault in parts": (("faults",), split),
    "faults backwards": (("faults",), lambda faults: faults[::-1]),
    "counts backwards": (("dropped",), lambda counts: dict(reversed(counts.items()))),
    "bytes as text": (("tallies", "arms", 0, "frame", 1), lambda data: base64.b64encode(data).decode()),
    "a count as a float": (("tallies", "arms", 0, "factor", 0), float),
    "a whole number as text": (("tallies", "arms", 0, "factor", 0), str),
}


@pytest.mark.parametrize(("path", "change"), MADE_UP.values(), ids=MADE_UP)
def test_another_way_to_write_the_same_state_is_not_that_state(path: tuple[Any, ...], change: Any) -> None:
    """One state has one form: what is loaded can be told from what was saved by its bytes."""
    tampered = changed(path, change)
    assert tampered != state()
    check(tampered)


def test_a_field_more_is_not_that_state() -> None:
    check(sealed(msgspec.msgpack.encode(body() | {"more": 1})))


IMPOSSIBLE: dict[str, tuple[tuple[Any, ...], Any]] = {
    "fewer than no records": (("tallies", "arms", 0, "factor", 0), -1),
    "a frame of fewer than none": (("tallies", "arms", 0, "frame_n"), -1),
    "fewer than no records in the scores": (("tallies", "arms", 0, "tallies", "records", 0), -1),
    "more clusters than records": (("tallies", "arms", 0, "tallies", "records", 1), 10**6),
    "other counts in the scores": (("tallies", "arms", 0, "tallies", "records", 0), 10**6),
    "more units than records": (("tallies", "arms", 0, "tallies", "units", 0), 10**6),
    "fewer than no faults": (("dropped", ""), -1),
    "fewer than no records of a fault": (("faults", 0, 3), -1),
    "records without a frame": (("tallies", "arms", 0, "frame_n"), 0),
    "no records, but a factor": (("tallies", "arms", 0, "factor", 0), 0),
}


@pytest.mark.parametrize(("path", "value"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_counts_that_cannot_be_are_refused(path: tuple[Any, ...], value: Any) -> None:
    check_refused(changed(path, lambda _: value))


def test_a_factor_below_its_diagonal_is_refused() -> None:
    def below(values: Any) -> None:
        values[values.size - 2] = 1.0  # the last row's last but one entry

    check_refused(changed(("tallies", "arms", 0, "factor", 1, 1), lambda data: doubles(data, below)), "not triangular")


def test_a_frame_without_an_inverse_is_refused() -> None:
    def flat(values: Any) -> None:
        values[-1] = 0.0

    check_refused(changed(("tallies", "arms", 1, "frame", 1), lambda data: doubles(data, flat)), "cannot be inverted")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(bad: float) -> None:
    def spoil(values: Any) -> None:
        values[0] = bad

    for path in [path for path in places(body()) if path[-1] == 1 and isinstance(path[-2], int | str)]:
        if isinstance(holder(body(), path)[1], bytes):
            check_refused(changed(path, lambda data: doubles(data, spoil)), "not finite")


@fuzz(max_examples=25)
@given(st.data())
def test_whatever_was_loaded_answers_or_says_why_not(data: st.DataObject) -> None:
    """A state whose numbers are finite and make no sense: effects, notes or an error of ours; nothing else."""
    paths = [path for path in places(body()) if isinstance(holder(body(), path)[path[-1]], bytes)]
    path = data.draw(st.sampled_from([path for path in paths if path[0] == "tallies"]))
    factor = data.draw(st.sampled_from([0.0, 1e-300, 1e-100, -1.0, 1e100, 1e200, 1e300]))
    with np.errstate(all="ignore"):
        trial = check(changed(path, lambda old: doubles(old, lambda values: np.multiply(values, factor, out=values))))
        if trial is not None:
            with contextlib.suppress(fa.FoldawayError):
                str(trial.effects())


# Bombs: a few bytes that ask for much.

CUT = msgspec.msgpack.encode
BOMBS = {
    "array of 2³² entries": b"\xdd\xff\xff\xff\xff",
    "map of 2³² entries": b"\xdf\xff\xff\xff\xff",
    "text of 2³² bytes": b"\xdb\xff\xff\xff\xff",
    "binary of 2³² bytes": b"\xc6\xff\xff\xff\xff",
    "extension of 2³² bytes": b"\xc9\xff\xff\xff\xff\x05",
    "lists a million deep": b"\x91" * 1_000_000,
    "maps a million deep": b"\x81\x01" * 1_000_000,
    "a time that is none": b"\xc7\x0c\xff" + b"\xff" * 12,
    "a key that is a list": b"\x81\x91\x01\x01",
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_a_bomb_is_refused_at_once(bomb: bytes) -> None:
    plan = CUT("plan") + CUT(sample().plan.canonical().decode())
    started = time.perf_counter()
    check_refused(sealed(bomb))
    check_refused(sealed(b"\x86" + CUT("tallies") + bomb))
    check_refused(sealed(b"\x86" + plan + CUT("tallies") + b"\x81" + CUT("arms") + b"\x92" + bomb))
    arms = CUT("tallies") + b"\x81" + CUT("arms") + b"\x92\x84"
    check_refused(sealed(b"\x86" + plan + arms + CUT("frame") + b"\x92" + bomb))
    assert time.perf_counter() - started < 2


@pytest.mark.parametrize("shape", [[2**62, 2**62], [-1, -16], [16], [4, 4, 1], [0, 0], []], ids=str)
def test_an_array_of_another_shape_is_refused(shape: list[int]) -> None:
    check_refused(changed(("tallies", "arms", 0, "frame", 0), lambda _: shape))


# Arrays.


@pytest.mark.parametrize("shape", [(0,), (3,), (2, 3), (2, 3, 4)])
def test_an_array_comes_back(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(1).normal(size=shape)
    for order in (values, np.asfortranarray(values)):
        packed = Array.of(order)
        np.testing.assert_array_equal(packed.read(*shape), values)
        again = msgspec.msgpack.decode(msgspec.msgpack.encode(packed), type=Array)
        assert again == packed
        assert again.read(*shape).flags.writeable


def test_unpack_gives_the_type_it_is_asked_for() -> None:
    data = pack(Array((1,), bytes(8)))
    assert unpack(data, Array) == Array((1,), bytes(8))
    with pytest.raises(fa.StateError, match="cannot be decoded"):
        unpack(data, dict)
