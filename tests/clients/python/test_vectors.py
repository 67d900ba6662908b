"""The vectors that the server's code makes: the Python client computes the same, and would notice if it did not."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import pytest

from foldaway_device.draws import draw
from foldaway_device.errors import RecordError
from foldaway_device.factor import merged, rows_of
from foldaway_device.floats import from_base64, unpacked
from foldaway_device.modes import mode_of
from foldaway_device.modes.mode import Holding
from foldaway_device.modes.one_message import moments
from foldaway_device.plan import Plan, read_plan
from foldaway_device.rows import row_of
from protocol_vectors import FILE

CASES: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))["cases"]

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
    assert_message(
        mode.report(plan, Holding(device["number"], arm, group, len(rows), sums), published), device["report"]
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["case"]))
def test_it_computes_what_the_vectors_say_and_a_changed_vector_fails(case: dict[str, Any]) -> None:
    assert_case(case)
    name = next(name for name in ("sums", "scores", "factor") if name in case["devices"][0]["report"])
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
