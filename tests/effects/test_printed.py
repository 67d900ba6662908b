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
from foldaway.effects.scorecard import shortened
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
        covariates=["revenue_before", {"column": "country", "levels": ["de", "fr", "us"]}],
        unit="user_id",
        moments=fa.Moments(bootstrap=bootstrap),
        records_per_unit="together" if units else "many",
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
        for everything in (False, True):
            widths = [len(line) for line in effects.to_string(all=everything).splitlines()]
            assert max(widths) <= WIDTH == 80


def test_headline_and_notes_are_wrapped() -> None:
    plan, rows = make_trial(3, n=600, arms=8)
    names = {f"arm{i}": f"a rather long name for an arm, number {i}" for i in range(8)}
    long = msgspec.structs.replace(plan, arms={names[arm]: share for arm, share in plan.arms.items()}, unit="unit")
    text = str(folded(long, rows.assign(group=rows["group"].map(names))).effects())
    headline, notes = text.split("\n\n")[0], text.split("\n\n")[-1]
    assert headline.count("\n") > 3
    assert "allow for 7 comparisons" in " ".join(notes.split())
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


def card(effects: fa.Effects) -> list[list[str]]:
    """The cells of the scorecard, header first."""
    lines = next(part for part in str(effects).split("\n\n") if part.startswith("outcome")).splitlines()
    return [re.split(r"\s{2,}", line.strip()) for line in (lines[0], *lines[2:])]


def test_a_line_for_every_outcome_comes_first() -> None:
    effects = realistic(1.0)
    assert str(effects).split("\n\n")[2].startswith("outcome")  # after what to do, and the number of records
    header, *lines = card(effects)
    assert header == ["outcome", "control", "treatment", "effect", "95 % interval", "verdict"]
    assert not tables(str(effects))
    for (name, control, level, effect, interval, word), said in zip(lines, effects.verdicts(), strict=True):
        assert (name, word.removesuffix(", one look")) == (said.outcome, said.verdict)
        assert word.endswith(", one look") == (said.decided and not said.holds)
        places = len(effect.partition(".")[2])
        texts = [control, level, effect, *interval.strip("[]").split(", ")]
        numbers = [said.control_level, said.level, said.estimate, said.ci_lower, said.ci_upper]
        assert [float(text) for text in texts] == pytest.approx(numbers, abs=0.51 * 10.0**-places)


@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_long_names_are_cut_so_that_lines_fit_and_units_of_measure_stay(scale: float) -> None:
    plan = fa.Plan(
        name="long",
        arm="g",
        arms={"as it has always been on this page": 0.4, "one of many new ideas": 0.3, "another one of those": 0.3},
        outcomes=[fa.Mean("y", label="What people spend in all of their visits together", measure="€"), "short"],
    )
    trial = fa.Trial(plan)
    y = scale * (100 + np.arange(300) % 7)
    trial.fold({"g": np.repeat(list(plan.arms), [120, 90, 90]), "y": y, "short": y % 11})
    text = str(trial.effects())
    assert max(map(len, text.splitlines())) <= WIDTH
    assert len(re.findall(r"^Wha.*… \(€\)  one of", text, flags=re.MULTILINE)) == 1
    header, *lines = card(trial.effects())
    assert header[1] == "arm"
    assert len(lines) == 4


@given(st.lists(st.text("ab (€)", max_size=40), min_size=1, max_size=5, unique=True), st.integers(8, 30))
@fuzz(max_examples=100)
def test_names_that_are_cut_stay_distinct(names: list[str], most: int) -> None:
    short = shortened(names, most)
    assert len(set(short.values())) == len(names)
    assert max(map(len, short.values())) <= most


def test_outcomes_and_arms_whose_names_begin_alike_can_be_told_apart() -> None:
    labels = [f"Revenue in euros and per {each}" for each in ("visit", "order")]
    arms = {f"the button as it looked in {month}": 0.5 for month in ("May", "June")}
    trial = fa.Trial(fa.Plan(name="p", arm="g", arms=arms, outcomes=[fa.Mean(c, label=c) for c in labels]))
    y = 100 + np.arange(300) % 7
    trial.fold({"g": np.repeat(list(arms), 150), labels[0]: y, labels[1]: y % 11})
    header, *lines = card(trial.effects())
    assert max(map(len, str(trial.effects()).splitlines())) <= WIDTH
    assert [line[0].split("…")[1] for line in lines] == ["visit", "order"]
    assert [name.split("…")[1] for name in header[1:3]] == ["May", "June"]


def test_the_rest_is_one_step_away() -> None:
    effects = realistic(1.0)
    shown = tables(effects.to_string(all=True))
    assert list(shown) == ["revenue: treatment against control", "converted: treatment against control"]
    for table in shown.values():
        assert table[0] == ["estimator", "error", "effect", "std.err.", "95 % interval", "adj. p", "any time"]
        assert len(table) == 1 + len(effects) // 2
    assert sum(len(table) - 1 for table in shown.values()) == len(effects)
    assert effects.to_string(all=True).startswith(str(effects).split("\n·")[0])


def test_a_kind_that_was_filtered_for_is_shown() -> None:
    effects = realistic(1.0).filter(se_kind="HC0", outcome="revenue")
    shown = tables(effects.to_string(all=True))
    assert [row[1] for row in shown["revenue: treatment against control"][1:]] == ["HC0"] * 4


def test_cells_are_the_rows_numbers_to_two_digits_of_the_smallest_error() -> None:
    effects = realistic(1.0)
    shown = tables(effects.to_string(all=True))
    for outcome in ("revenue", "converted"):
        rows = effects.filter(outcome=outcome)
        smallest = min(known(row.std_error) for row in rows)
        step = 10.0 ** (math.floor(math.log10(smallest)) - 1)
        for row, cells in zip(rows, shown[f"{outcome}: treatment against control"][1:], strict=True):
            assert float(cells[2]) == pytest.approx(row.estimate, abs=0.51 * step)
            assert float(cells[3]) == pytest.approx(row.std_error, abs=0.051 * step)
            assert [float(end) for end in cells[4].strip("[]").split(", ")] == pytest.approx(
                [row.ci_lower, row.ci_upper], abs=0.51 * step
            )
            assert cells[5] == p_text(row.p_adjusted)
            assert 10 * step <= smallest < 100 * step
            reach = known(row.anytime_ci_upper) - known(row.estimate)
            assert float(cells[6].removeprefix("±")) == pytest.approx(reach, abs=0.51 * step)
            decimals = len(cells[2].partition(".")[2])
            assert decimals == -round(math.log10(step))


def test_the_legend_speaks_of_covariates_only_where_there_are_some() -> None:
    plan, rows = make_trial(1, covariates=0)
    without = folded(plan, rows).effects()
    assert "covariates" not in without.to_string(all=True)
    assert "covariates" in realistic(1.0).to_string(all=True)
    for text in (without.to_string(all=True), without.to_html(all=True)):
        assert "any time" in text
    assert "any time" not in without[:0].to_string(all=True)


def test_an_alarm_stands_before_notes() -> None:
    plan, rows = make_trial(10, n=4000, covariates=0)
    trial = folded(plan, rows[(rows.group == "arm0") | (np.arange(len(rows)) % 4 > 0)])
    with pytest.warns(fa.SampleRatioWarning) as warned:
        effects = trial.effects()
    assert [str(warning.message) for warning in warned] == [effects.alarm]
    assert "\n! The arms' records" in str(effects)
    assert effects.alarm is not None
    assert effects.alarm.endswith("Find out why before you trust any effect.")
    assert effects.alarm not in effects.notes
    assert realistic(1.0).alarm is None
    assert "\n!" not in str(realistic(1.0))


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
    for everything in (False, True):
        page = Page()
        page.feed(effects.to_html(all=everything))
        assert not page.open
        assert set(page.tags) == (HTML if everything else HTML - {"caption"})
        shown = tables(effects.to_string(all=everything))
        cells = [cell for row in card(effects) for cell in row]
        cells += [cell for title, table in shown.items() for cell in (title, *(c for row in table for c in row))]
        assert [text for text in page.texts if text in set(cells)] == cells


def test_names_cannot_break_a_page() -> None:
    plan, rows = make_trial(1, n=100)
    nasty = "<script>alert('&\"')</script>"
    arms = {f"{nasty}{arm[-1]}": share for arm, share in plan.arms.items()}
    plan = msgspec.structs.replace(plan, arms=arms, outcomes=[nasty])
    rows = rows.rename(columns={"y0": nasty}).assign(group=rows["group"].map(lambda arm: nasty + arm[-1]))
    page = Page()
    page.feed(folded(plan, rows).effects().to_html(all=True))
    assert set(page.tags) <= HTML
    assert sum(nasty in text for text in page.texts) >= 5  # the headline, the outcome, both arms, a title
    empty = Page()
    empty.feed(folded(plan, rows[rows["group"] == f"{nasty}0"][:5]).effects().to_html(all=True))
    assert set(empty.tags) <= HTML
    assert sum(nasty in text for text in empty.texts) >= 5


# Numbers for a person


@fuzz(max_examples=100)
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


@fuzz(max_examples=100)
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
    assert percent_text(nothing) == "–"
    one_sided = {-math.inf: "≤ 1.000"}.get(nothing if nothing is not None else 0.0, "–")  # an interval that has one end
    assert reach_text(nothing, 1.0) == interval_text(nothing, 1.0) == one_sided
    assert interval_text(1.0, nothing) == ("≥ 1.000" if nothing == math.inf else "–")
