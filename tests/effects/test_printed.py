"""Effects for a person: they fit the screen, round as one should, and cannot break a page."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser
from itertools import takewhile

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foldaway as fa
from foldaway.effects.effects import WIDTH
from foldaway.effects.numbers import interval_text, p_text, percent_text, reach_text
from fuzzing import fuzz
from trials import folded, known, make_trial


def realistic(scale: float, *, n: int = 4000, units: bool = True, bootstrap: int | None = None) -> fa.Effects:
    """A checkout: revenue of some size, and a rate, which is small."""
    rng = np.random.default_rng(7)
    treated = rng.random(n // 2).repeat(2) < 0.5
    before = rng.gamma(2, 20 * scale, n)
    plan = fa.Plan(
        name="checkout-button",
        arm="variant",
        arms={"control": 0.5, "treatment": 0.5},
        outcomes=["revenue", "converted"],
        covariates=["revenue_before", "country"],
        levels={"country": ["de", "fr", "us"]},
        unit="user_id",
        keep="moments",
        complete_units=units,
        bootstrap=bootstrap,
    )
    trial = fa.Trial(plan)
    trial.fold(
        {
            "variant": np.where(treated, "treatment", "control"),
            "revenue": 0.8 * before + rng.gamma(2, 10 * scale, n) + scale * treated,
            "converted": rng.random(n) < 0.02,
            "revenue_before": before,
            "country": rng.choice(["de", "fr", "us"], n),
            "user_id": np.arange(n) // 2,
        }
    )
    return trial.effects()


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0, 10_000.0])
def test_what_is_printed_fits_80_columns(scale: float) -> None:
    for effects in (realistic(scale), realistic(scale, units=False), realistic(scale, bootstrap=200)):
        for given_as in (effects, effects.adjusted("holm")):
            for all_kinds in (False, True):
                widths = [len(line) for line in given_as.to_string(all_kinds=all_kinds).splitlines()]
                assert max(widths) <= WIDTH == 80


def test_headline_and_notes_are_wrapped() -> None:
    plan, rows = make_trial(3, n=600, arms=8)
    names = {f"arm{i}": f"a rather long name for an arm, number {i}" for i in range(8)}
    long = msgspec.structs.replace(plan, arms={names[arm]: share for arm, share in plan.arms.items()}, unit="unit")
    text = str(folded(long, rows.assign(group=rows["group"].map(names))).effects())
    headline, notes = text.split("\n\n")[0], text.split("\n\n")[-1]
    assert headline.count("\n") > 3
    assert "independent" in notes
    assert all(len(line) <= WIDTH for line in (headline + "\n" + notes).splitlines())


# What is shown


def tables(text: str) -> dict[str, list[list[str]]]:
    """The cells of every table, header first, by title."""
    found = {}
    for part in text.split("\n\n"):
        lines = part.splitlines()
        if len(lines) > 2 and set(lines[2]) == {"─", " "}:
            rows = takewhile(lambda line: not line.startswith("– "), lines[3:])  # what follows are reasons
            found[lines[0]] = [re.split(r"\s{2,}", line.strip()) for line in (lines[1], *rows)]
    return found


def test_a_table_for_every_comparison_with_one_kind_of_error_for_each_estimator() -> None:
    effects = realistic(1.0)
    shown = tables(str(effects))
    assert list(shown) == ["revenue: treatment against control", "converted: treatment against control"]
    for table in shown.values():
        assert table[0] == ["estimator", "error", "effect", "95 % interval", "p", "relative", "any time"]
        assert [row[:2] for row in table[1:]] == [[e, "CR1"] for e in dict.fromkeys(row.estimator for row in effects)]
    by_record = next(iter(tables(str(realistic(1.0, units=False))).values()))[1:]
    best = {"ipw": "HC2", "difference": "HC2", "regression": "HC1", "interacted": "HC1"}
    assert dict(row[:2] for row in by_record) == best


def test_all_kinds_are_shown_on_request() -> None:
    effects = realistic(1.0)
    shown = tables(effects.to_string(all_kinds=True))
    for table in shown.values():
        assert table[0] == ["estimator", "error", "effect", "std.err.", "95 % interval", "p", "any time"]
        assert len(table) == 1 + len(effects) // 2
    assert sum(len(table) - 1 for table in shown.values()) == len(effects)


def test_a_kind_that_was_filtered_for_is_shown() -> None:
    shown = tables(str(realistic(1.0).filter(se_kind="HC0", outcome="revenue")))
    assert [row[1] for row in shown["revenue: treatment against control"][1:]] == ["HC0"] * 4


def test_adjusted_p_values_take_the_place_of_the_others() -> None:
    effects = realistic(1.0).adjusted("holm")
    table = tables(str(effects))["revenue: treatment against control"]
    assert table[0][4] == "adj. p"
    rows = effects.filter(outcome="revenue", se_kind="CR1")
    assert [row[4] for row in table[1:]] == [p_text(row.p_adjusted) for row in rows]


def test_cells_are_the_rows_numbers_to_two_digits_of_the_smallest_error() -> None:
    effects = realistic(1.0)
    for outcome in ("revenue", "converted"):
        rows = effects.filter(outcome=outcome, se_kind="CR1")
        smallest = min(known(row.std_error) for row in rows)
        step = 10.0 ** (math.floor(math.log10(smallest)) - 1)
        for row, cells in zip(rows, tables(str(effects))[f"{outcome}: treatment against control"][1:], strict=True):
            assert float(cells[2]) == pytest.approx(row.estimate, abs=0.51 * step)
            assert [float(end) for end in cells[3].strip("[]").split(", ")] == pytest.approx(
                [row.ci_lower, row.ci_upper], abs=0.51 * step
            )
            assert 10 * step <= smallest < 100 * step
            reach = known(row.anytime_ci_upper) - known(row.estimate)
            assert float(cells[6].removeprefix("±")) == pytest.approx(reach, abs=0.51 * step)
            decimals = len(cells[2].partition(".")[2])
            assert decimals == -round(math.log10(step))


def test_the_legend_speaks_of_covariates_only_where_there_are_some() -> None:
    plan, rows = make_trial(1, covariates=0)
    without = folded(plan, rows).effects()
    assert "covariates" not in str(without)
    assert "covariates" in str(realistic(1.0))
    for text in (str(without), without.to_html()):
        assert "any time" in text
    assert "any time" not in str(without[:0])


def test_an_alarm_stands_before_notes() -> None:
    plan, rows = make_trial(10, n=4000, covariates=0)
    trial = folded(plan, rows[(rows.group == "arm0") | (np.arange(len(rows)) % 4 > 0)])
    with pytest.warns(fa.SampleRatioWarning) as warned:
        effects = trial.effects()
    assert [str(warning.message) for warning in warned] == [effects.alarm]
    assert "\n! The arms' records" in str(effects)
    assert "·" not in str(effects)
    assert effects.alarm is not None
    assert effects.alarm.endswith("Find out why before you trust any effect.")
    assert effects.alarm not in effects.notes
    assert realistic(1.0).alarm is None
    assert "\n!" not in str(realistic(1.0))
    assert "\n· " in str(realistic(1.0, units=False))


# HTML


class Page(HTMLParser):
    """Collects tags and texts, and checks that tags are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


HTML = {"div", "p", "table", "caption", "thead", "tbody", "tr", "th", "td"}


def test_html_has_the_same_cells_as_the_text() -> None:
    effects = realistic(1.0)
    for all_kinds in (False, True):
        page = Page()
        page.feed(effects.to_html(all_kinds=all_kinds))
        assert not page.open
        assert set(page.tags) == HTML
        shown = tables(effects.to_string(all_kinds=all_kinds))
        cells = [cell for title, table in shown.items() for cell in (title, *(c for row in table for c in row))]
        assert [text for text in page.texts if text in set(cells)] == cells


def test_names_cannot_break_a_page() -> None:
    plan, rows = make_trial(1, n=100)
    nasty = "<script>alert('&\"')</script>"
    arms = {f"{nasty}{arm[-1]}": share for arm, share in plan.arms.items()}
    plan = msgspec.structs.replace(plan, arms=arms, outcomes=[nasty])
    rows = rows.rename(columns={"y0": nasty}).assign(group=rows["group"].map(lambda arm: nasty + arm[-1]))
    page = Page()
    page.feed(folded(plan, rows).effects().to_html())
    assert set(page.tags) <= HTML
    assert sum(nasty in text for text in page.texts) == 2  # the headline and the title
    empty = Page()
    empty.feed(folded(plan, rows[rows["group"] == f"{nasty}0"][:5]).effects().to_html())
    assert set(empty.tags) <= HTML
    assert sum(nasty in text for text in empty.texts) == 2


# Numbers for a person


@fuzz(max_examples=200)
@given(st.floats(0, 1))
def test_p_values(p: float) -> None:
    text = p_text(p)
    if p < 0.001:
        assert text == "<0.001"
    else:
        assert abs(float(text) - p) <= 0.0005 + 1e-12


@pytest.mark.parametrize("p", [None, math.nan])
def test_no_p_value(p: float | None) -> None:
    assert p_text(p) == "–"


@fuzz(max_examples=200)
@given(st.floats(-1e6, 1e6))
def test_percentages(share: float) -> None:
    text = percent_text(share)
    assert text[0] in "+-"
    assert text.endswith(" %")
    assert len(text) <= 9
    shown = float(text[:-2].replace(",", "")) / 100
    assert shown == pytest.approx(share, rel=0.006 if abs(share) < 999 else 0.34, abs=0.00005001)
    assert not text.startswith("-0.00")


@pytest.mark.parametrize("nothing", [None, math.nan, math.inf, -math.inf])
def test_numbers_that_do_not_exist_are_dashes(nothing: float | None) -> None:
    assert percent_text(nothing) == reach_text(nothing, 1.0) == interval_text(nothing, 1.0) == "–"
    assert interval_text(1.0, nothing) == "–"
