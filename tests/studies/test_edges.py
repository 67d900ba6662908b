"""Random plans and data sets at the edges, on a small scale: what the study does with ten thousand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[2]))  # studies/ lies beside tests/ and is no part of the package

from studies import edges


@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1))
def test_no_number_is_wrong_or_missing_without_a_reason(seed: int) -> None:
    tally = edges.Tally()
    edges.check(edges.draw(seed, most=60), tally)
    assert tally.faults == []


# Each has been a fault once.
@pytest.mark.parametrize(
    "seed",
    [
        143,  # a group without which two columns nearly are one
        173,  # a control of zeros
        313,  # one record with all the weight of an arm that is not compared
        1049,  # an outcome at 10¹⁰, and columns that nearly repeat others
        1185,  # a control of one record
        1291,  # a direction that one group alone shows
        1312,  # two arms of zeros, and unequal weights
        1484,  # a repeated column before one with heavy tails
        1842,  # outcomes and weights whose products are denormal
        1861,  # coefficients, and an outcome at 10¹⁰
    ],
)
def test_what_the_study_found_stays_mended(seed: int) -> None:
    tally = edges.Tally()
    edges.check(edges.draw(seed), tally)
    assert tally.faults == []


def test_the_study_sees_what_is_wrong() -> None:
    case = edges.draw(8)
    whole = edges.rows_of(case, lambda: edges.folded(case, [0, case.n]))
    part = edges.rows_of(case, lambda: edges.folded(case, [0, case.n - 1]))
    assert max(edges.apart(row, part[name]) for name, row in whole.items()) > edges.MOST["hard"]
