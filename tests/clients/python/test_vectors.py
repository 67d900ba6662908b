"""The vectors that the server's code makes: the Python client computes the same, and would notice if it did not."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from foldaway_device.draws import draw
from foldaway_device.errors import RecordError
from foldaway_device.factor import merged, rows_of
from foldaway_device.floats import from_base64, unpacked
from foldaway_device.modes import mode_of
from foldaway_device.modes.mode import Holding
from foldaway_device.modes.one_message import moments
from foldaway_device.modes.shares import expanded, fixed, halves, info_of, leaders_half
from foldaway_device.plan import Plan, read_plan
from foldaway_device.rows import row_of
from hpke import private_key
from protocol_vectors import FILE

SUITE = Suite(KEM.P256, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
CASES: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))["cases"]

PRIVATE_KEYS = {role: from_base64(key) for case in CASES for role, key in case.get("private_keys", {}).items()}

# Words whose numbers are compared with a tolerance; a factor by its products, since its rows may have either sign.
FLOATS = {"sums", "scores", "factor"}


def assert_close(found: Sequence[float], expected: Sequence[float], name: str) -> None:
    assert len(found) == len(expected), name
    most = 1e-9 * max(map(abs, expected), default=0.0)
    assert all(abs(a - b) <= most for a, b in zip(found, expected, strict=True)), name


def products(factor: Sequence[float]) -> list[float]:
    rows = list(rows_of(factor))
    return [sum(row[i] * row[j] for row in rows) for i in range(len(rows)) for j in range(len(rows))]


def assert_message(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert list(found) == list(expected)
    for name, value in found.items():
        if name not in FLOATS:
            assert value == expected[name], name
        elif name == "factor":
            assert_close(products(unpacked(value)), products(unpacked(expected[name])), name)
        else:
            assert_close(unpacked(value), unpacked(expected[name]), name)


def assert_case(case: dict[str, Any]) -> None:
    plan = read_plan(case["plan"].encode())
    assert plan.fingerprint == case["fingerprint"]
    columns = [*plan.regressors, *(value.name for value in plan.values)]
    reads = {"mode": plan.mode, "device_records": plan.device_records, "retention": plan.retention, "columns": columns}
    assert reads == case["reads"]
    for each in case["draws"]:
        drawn = draw(plan, from_base64(each["identity"]))
        assert (drawn.arm, drawn.group) == (each["arm"], each.get("group", drawn.group))
    for each in case["faulty"]:
        with pytest.raises(RecordError) as refused:
            row_of(plan, each["record"], next(iter(plan.arms)))
        assert refused.value.faults == {each["column"]: each["rule"]}
    for device in case["devices"]:
        assert_device(plan, device)


def assert_device(plan: Plan, device: dict[str, Any]) -> None:
    arm, group = draw(plan, from_base64(device["identity"]))
    assert device["enrolment"] == {"number": device["number"], "arm": arm}
    rows = [row_of(plan, record, arm) for record in device["records"]]
    for row, expected in zip(rows, device["rows"], strict=True):
        assert_close([1.0, *row.x, *row.y], unpacked(expected), "rows")
    assert_close([row.weight for row in rows], unpacked(device["weights"]), "weights")
    mode, sums, published = mode_of(plan.mode), list[float](), None
    for row in rows:
        sums = mode.take_in(plan, sums, row)
    if mode.replies:
        message = moments(Holding(device["moments"]["number"], arm, group, len(rows), sums), first=True)
        assert_message(message, device["moments"])
        sums, published = merged([], unpacked(message["factor"])), device["coefficients"]
    holding = Holding(device["number"], arm, group, len(rows), sums)
    found = mode.report(plan, holding, published)
    if "seed" in device:
        assert_halves(plan, holding, device)
        assert list(found) == list(device["report"])
        found = {**device["report"], "number": found["number"], "arm": found["arm"], "group": found["group"]}
    assert_message(found, device["report"])


def assert_halves(plan: Plan, holding: Holding, device: dict[str, Any]) -> None:
    """The words, the halves, and that both servers open what is sealed for them: here, and in the vectors."""
    seed, words = from_base64(device["seed"]), struct.unpack(f"<{len(holding.sums) + 1}q", from_base64(device["words"]))
    assert_close(fixed(plan, holding.n, holding.sums), words, "words")
    assert leaders_half(words, seed) == from_base64(device["leaders_half"])
    expected = {"leader": leaders_half(words, seed), "helper": seed}
    for sent in (halves(plan, holding, seed), device["report"]):
        for role, half in expected.items():
            info = info_of(plan.fingerprint, role, from_base64(device["number"]), sent["arm"], sent["group"])
            assert info == from_base64(device["info"][role])
            try:
                opened = SUITE.decrypt(from_base64(sent[role]), private_key(PRIVATE_KEYS[role]), info)
            except InvalidTag:
                opened = b""
            if sent is device["report"] or role == "helper":
                assert opened == half
            else:
                own = zip(struct.unpack(f"<{len(words)}Q", opened), expanded(seed, len(words)), strict=True)
                assert_close([(a + b + 2**63) % 2**64 - 2**63 for a, b in own], words, "words")


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["case"]))
def test_it_computes_what_the_vectors_say_and_a_changed_vector_fails(case: dict[str, Any]) -> None:
    assert_case(case)
    name = next(name for name in ("sums", "scores", "factor", "leader") if name in case["devices"][0]["report"])
    spoilt: list[Callable[[Any], Any]] = [
        lambda copy: copy.update(fingerprint="0" * 64),
        lambda copy: copy.update(plan=copy["plan"] + " "),
        lambda copy: copy["reads"]["columns"].__setitem__(1, "x"),
        lambda copy: copy["draws"][0].update(arm="x"),
        lambda copy: copy["faulty"][0].update(rule="x"),
        lambda copy: copy["devices"][0]["rows"].__setitem__(0, copy["devices"][1]["rows"][0]),
        lambda copy: copy["devices"][0]["report"].update({name: copy["devices"][1]["report"][name]}),
    ]
    for spoil in spoilt:
        copy = deepcopy(case)
        spoil(copy)
        with pytest.raises(AssertionError):
            assert_case(copy)
