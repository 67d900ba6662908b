"""Tables and numbers for a person."""

from __future__ import annotations

import html
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldaway.table import html_table, number, places_for, text_table
from fuzzing import fuzz

cells = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=12)


@st.composite
def grids(draw: st.DrawFn) -> tuple[list[str], list[list[str]]]:
    width = draw(st.integers(1, 5))
    row = st.lists(cells, min_size=width, max_size=width)
    return draw(row), draw(st.lists(row, max_size=5))


@fuzz(max_examples=50)
@given(grids(), st.integers(0, 5))
def test_every_cell_stands_in_its_column(grid: tuple[list[str], list[list[str]]], left: int) -> None:
    header, rows = grid
    lines = text_table(header, rows, left=left).split("\n")
    assert len(lines) == len(rows) + 2
    ruler = lines.pop(1)
    widths = [max(len(row[c]) for row in (header, *rows)) for c in range(len(header))]
    assert ruler == "  ".join("─" * width for width in widths)
    for line, row in zip(lines, (header, *rows), strict=True):
        at = 0
        for c, (cell, width) in enumerate(zip(row, widths, strict=True)):
            found = line[at : at + width].ljust(width)
            assert found == (cell.ljust(width) if c < left else cell.rjust(width))
            at += width + 2
        assert line == line.rstrip()


@fuzz(max_examples=50)
@given(grids(), cells)
def test_html_gives_back_every_cell(grid: tuple[list[str], list[list[str]]], caption: str) -> None:
    header, rows = grid
    text = html_table(header, rows, caption)
    found = re.findall(r"<t[hd]>(.*?)</t[hd]>", text)
    assert found == [html.escape(cell) for row in (header, *rows) for cell in row]
    assert text.count("<tr>") == len(rows) + 1
    assert (f"<caption>{html.escape(caption)}</caption>" in text) == bool(caption)


def test_a_caption_only_if_there_is_one() -> None:
    assert "<caption>" not in html_table(["a"], [["1"]])


@fuzz(max_examples=75)
@given(st.floats(-1e300, 1e300, allow_subnormal=False), st.integers(2, 10))
def test_a_number_has_the_digits_asked_for(value: float, digits: int) -> None:
    text = number(value, digits)
    assert float(text.replace(",", "")) == pytest.approx(value, rel=0.51 * 10.0 ** (1 - digits), abs=1e-8 * 0.51)


@fuzz(max_examples=75)
@given(st.floats(-1e9, 1e9, exclude_min=True, exclude_max=True), st.integers(0, 8))
def test_a_number_has_the_places_asked_for(value: float, places: int) -> None:
    text = number(value, places=places)
    assert len(text.partition(".")[2]) == places
    assert float(text.replace(",", "")) == pytest.approx(value, abs=0.50001 * 10.0**-places, rel=1e-15)
    assert not (text.startswith("-") and float(text.replace(",", "")) == 0)


def test_numbers_of_other_kinds() -> None:
    assert [number(value) for value in (None, math.nan, math.inf, -math.inf, np.nan)] == ["–"] * 5
    assert [number(value) for value in (0, 1234567, -1000)] == ["0", "1,234,567", "-1,000"]
    assert number(math.nan, places=2) == "–"
    assert number(np.float64(1234.5678)) == "1,235"
    assert number(12345678901.0, places=2) == "1.235e+10"


@fuzz(max_examples=75)
@given(st.lists(st.floats(1e-6, 1e12), min_size=1, max_size=5))
def test_places_show_two_digits_of_the_smallest_error(errors: list[float]) -> None:
    places = places_for([*errors, 0.0, math.nan])
    assert places is not None
    assert places >= 0
    smallest = min(errors)
    if smallest < 10:
        assert smallest * 10.0**places * (1 + 1e-12) >= 10
        assert smallest * 10.0**places < 100 * (1 + 1e-12)
    else:
        assert places == 0


@pytest.mark.parametrize("errors", [[], [0.0], [math.nan], [math.inf], [1e-20, 1.0], [-1.0]])
def test_no_places_where_there_is_no_error_to_speak_of(errors: list[float]) -> None:
    assert places_for(errors) is None
