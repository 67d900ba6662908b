"""Axes: what lies between the ends, and round numbers on the way."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from foldaway.report.drawing.figures import Axis, axis_over
from fuzzing import fuzz

numbers = st.floats(allow_nan=False, allow_infinity=False, width=64)
anything = st.lists(st.floats(width=64), max_size=8)


@fuzz(max_examples=100)
@given(anything, st.booleans())
def test_every_number_has_its_place_in_order(values: list[float], symmetric: bool) -> None:
    axis = axis_over(values, symmetric=symmetric)
    assert axis.low <= 0 <= axis.high
    assert axis.low < axis.high
    there = sorted(value for value in values if math.isfinite(value))
    places = [axis.place(value) for value in there]
    assert places == sorted(places)
    assert all(axis.low <= value <= axis.high for value in there)
    assert all(6 <= place <= 94 for place in places)
    if symmetric:
        assert axis.low == -axis.high
        assert axis.place(0.0) == 50


@fuzz(max_examples=100)
@given(numbers, numbers)
def test_place_is_linear(a: float, b: float) -> None:
    assume(a < b)
    axis = Axis(a, b)
    assert (axis.place(a), axis.place(b)) == (6, 94)
    assert axis.place(a / 2 + b / 2) == pytest.approx(50, abs=0.01)


@fuzz(max_examples=150)
@given(numbers, numbers, st.integers(3, 8))
def test_ticks_are_few_within_the_axis_and_evenly_apart(a: float, b: float, most: int) -> None:
    assume(b - a > 1e-9 * max(abs(a), abs(b), 1e-280))
    axis = Axis(a, b)
    ticks = axis.ticks(most)
    assert 1 <= len(ticks) <= most + 1
    slack = 1e-6 * (b / 2 - a / 2)
    assert all(a - slack <= tick <= b + slack for tick in ticks)
    assert list(axis.labels(most)) == ticks


@pytest.mark.parametrize(
    ("axis", "labels"),
    [
        (Axis(0.0, 1.35), ["0.00", "0.25", "0.50", "0.75", "1.00", "1.25"]),
        (Axis(-3.0, 9.0), ["-2", "0", "2", "4", "6", "8"]),
        (Axis(0.0, 52_000.0), ["0", "10,000", "20,000", "30,000", "40,000", "50,000"]),
        (Axis(0.0, 0.0123), ["0.0000", "0.0025", "0.0050", "0.0075", "0.0100"]),
        (Axis(-2e-9, 2e-9), ["-2e-09", "-1e-09", "0", "1e-09", "2e-09"]),
        (Axis(0.0, 5e14), ["0", "1e+14", "2e+14", "3e+14", "4e+14", "5e+14"]),
    ],
)
def test_labels(axis: Axis, labels: list[str]) -> None:
    assert list(axis.labels().values()) == labels
