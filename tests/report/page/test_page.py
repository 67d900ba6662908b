"""The report: every number in it is the effects' own, it stands alone, and no name can break it."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

import foldaway as fa
from foldaway.effects.headline import comparisons
from foldaway.inference.contrast import Question
from foldaway.inference.estimators import distribution
from foldaway.report.page.page import effects_page, spreads
from foldaway.tallies import arms_of
from pages import Element, interval_matches, matches, parsed, shown, tables
from plans import replaced
from reported import CASES, HOSTILE, case, renamed
from sizes import mostly_slow
from trials import folded, known, make_trial

EVERY = pytest.mark.parametrize("name", CASES)
SOME = pytest.mark.parametrize("name", mostly_slow(CASES, "empty", "resampled", "faulty"))
WITH_EFFECTS = pytest.mark.parametrize("name", [name for name in CASES if name != "empty"])


@cache
def effects_of(name: str) -> fa.Effects:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fa.SampleRatioWarning)
        return case(name).effects()


@cache
def report_of(name: str) -> str:
    return case(name).report().html


def page_of(name: str) -> Element:
    return parsed(report_of(name))


# It stands alone


def outside_references(page: Element) -> list[str]:
    """Whatever could make a browser load, run or send something."""
    found = [element.name for element in page.find() if element.name in ("script", "link", "img", "iframe", "form")]
    for element in page.find():
        for key, value in element.attributes.items():
            if key.startswith("on") or key in ("src", "srcset", "style", "action", "ping", "formaction"):
                found.append(f"{element.name} {key}")
            if key.endswith("href") and not (value or "").startswith("#"):
                found.append(f"{element.name} {key}={value}")
    style = page.one("style").text
    return found + re.findall(r"url\(|@import|@font-face|https?:", style)


@SOME
def test_nothing_is_loaded_run_or_sent(name: str) -> None:
    for report in (report_of(name), effects_page(effects_of(name)).html):
        page = parsed(report)
        assert outside_references(page) == []
        policy = page.one("meta", http_equiv="Content-Security-Policy").attributes["content"] or ""
        assert policy.startswith("default-src 'none'; ")
        assert "script" not in policy


def test_the_check_for_references_can_say_no() -> None:
    style = "<style>{}</style>"
    for bad in ("<script></script>", "<p onclick='x'></p>", "<a href='http://a'></a>", "<svg href='//a'></svg>"):
        assert outside_references(parsed(style.format("") + bad))
    assert outside_references(parsed(style.format("@import 'a'")))
    assert not outside_references(parsed(style.format("") + "<a href='#a'></a>"))


# It is a good page


@EVERY
def test_structure(name: str) -> None:
    page = page_of(name)
    assert page.one("html").attributes["lang"] == "en"
    assert [e.name for e in page.one("body").children if isinstance(e, Element)] == ["header", "nav", "main", "footer"]
    ids = [element.attributes["id"] for element in page.find() if "id" in element.attributes]
    assert len(set(ids)) == len(ids)
    for element in page.find():
        for key in ("aria-labelledby", "aria-describedby"):
            assert element.attributes.get(key, ids[0]) in ids
    assert {link.attributes["href"] for link in page.find("a")} <= {f"#{each}" for each in ids}
    levels = [int(e.name[1]) for e in page.find() if re.fullmatch("h[1-6]", e.name)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


@EVERY
def test_tables_and_figures_can_be_read_aloud(name: str) -> None:
    page = page_of(name)
    for table in page.find("table"):
        assert table.one("caption").text
        assert all(cell.attributes["scope"] == "col" for cell in table.one("thead").find("th"))
        for row in table.one("tbody").find("tr"):
            assert row.one("th").attributes["scope"] == "row"
    for picture in page.find("svg", role="img"):
        assert picture.one("title").text
        assert picture.one("desc").text
        assert picture.one("desc").text in (picture.attributes["aria-label"] or "")
    hidden = [e for e in page.find("svg") if e.attributes.get("aria-hidden") == "true"]
    # The others are marks within a picture.
    assert all(e.attributes.get("role") == "img" or e in hidden or "x" in e.attributes for e in page.find("svg"))


@SOME
def test_the_same_state_gives_the_same_page(name: str) -> None:
    trial = case(name)
    assert fa.Trial.loads(trial.exchanged()).report().html == report_of(name)
    trial.fix()
    assert fa.Trial.loads(trial.dumps()).report().html == trial.report().html


# Its numbers are the effects' numbers


@WITH_EFFECTS
def test_every_effect_is_in_its_table(name: str) -> None:
    effects = effects_of(name)
    page = page_of(name)
    shown_tables = {table.caption: table for table in tables(page.one("section", id="found"))}
    assert len(shown_tables) == len(comparisons(effects)) == len({(row.outcome, row.arm) for row in effects})
    for (outcome, arm), table in zip({(r.outcome, r.arm): 0 for r in effects}, shown_tables.values(), strict=True):
        rows = [row for row in effects if (row.outcome, row.arm) == (outcome, arm)]
        for row, cells in zip(rows, table.rows, strict=True):
            cell = dict(zip(table.header, cells, strict=True))
            assert [cell["estimator"], cell["error"]] == [row.estimator, row.se_kind]
            assert matches(cell["effect"], row.estimate)
            assert matches(cell["std. error"], row.std_error)
            assert matches(cell["df"], row.df)
            assert interval_matches(cell["95 % interval"], row.ci_lower, row.ci_upper)
            assert interval_matches(cell["any time"], row.anytime_ci_lower, row.anytime_ci_upper)
            assert (
                cell["p"] == "<0.001"
                if (1.0 if row.p_value is None else row.p_value) < 0.001
                else matches(cell["p"], row.p_value)
            )
            if row.p_adjusted is not None:
                assert cell["adjusted p"] == "<0.001" or matches(cell["adjusted p"], row.p_adjusted)


@WITH_EFFECTS
def test_the_page_begins_with_a_line_for_every_outcome_and_arm(name: str) -> None:
    effects, page = effects_of(name), page_of(name)
    section = next(page.find("section"))
    assert section.attributes["id"] == "glance"
    [table] = tables(section)
    several = len(effects.counts) > 2
    assert len(table.rows) == len(effects.verdicts()) == len(comparisons(effects))
    for cells, said in zip(table.rows, effects.verdicts(), strict=True):
        assert cells[0] == said.label + (said.arm if several else "")
        word, effect, interval, control, level = cells[1:]
        assert matches(control, said.control_level)
        assert matches(level, said.level)
        assert matches(effect.removeprefix("+"), said.estimate)
        assert interval_matches(interval, said.ci_lower, said.ci_upper)
        assert word.split(" ", 1)[1].lower().removesuffix(", one look") == said.verdict


@WITH_EFFECTS
def test_each_comparison_has_a_sentence_that_agrees_with_its_interval(name: str) -> None:
    effects = effects_of(name)
    sentences = [p.text for p in page_of(name).find("p", class_="finding")]
    assert len(sentences) == len(comparisons(effects))
    for sentence, each, said in zip(sentences, comparisons(effects), effects.verdicts(), strict=True):
        lead = each.lead
        word = sentence.split(" ", 1)[1]
        assert word.lower().startswith(said.verdict)
        if lead.why is not None:
            assert sentence.endswith(lead.why)
            continue
        alone = not known(lead.ci_lower) <= 0 <= known(lead.ci_upper)
        if effects.alarm is None and not said.decided:
            assert "not decided yet" in sentence
            assert ("among so many comparisons" in sentence) == alone
        elif effects.alarm is None:
            assert alone
            assert word.startswith(("Higher", "Better") if known(lead.estimate) > 0 else ("Lower", "Worse"))
            assert ("however often" in sentence) == (said.anytime == said.verdict)
            if lead.anytime_why is not None:
                assert sentence.endswith(lead.anytime_why)
            else:
                assert ("not certain yet" in sentence) != said.holds
        low, high = re.findall(r"from (\S+) to (\S+) \(95", sentence.replace("\u202f×\u202f", "×"))[-1]
        assert matches(low.replace("×", "\u202f×\u202f"), lead.ci_lower)
        assert matches(high.replace("×", "\u202f×\u202f"), lead.ci_upper)


def scale_of(figure: Element) -> tuple[float, float, float]:
    """The axis by its labels alone: where zero lies, per cent per unit, and how far a label may be off."""
    axis = figure.one("svg", class_="axis")
    ticks = [(shown(text.text), text.percent("x")) for text in axis.find("text")]
    (first, left), *_, (last, right) = ticks
    slope = (right - left) / (last.value - first.value)
    slack = (first.rounding + last.rounding) * abs(slope) * 2
    return left - slope * first.value, slope, slack + 0.002


@WITH_EFFECTS
def test_marks_lie_where_their_numbers_are_on_the_axis(name: str) -> None:
    effects = effects_of(name)
    section = page_of(name).one("section", id="found")
    leads = iter(each.lead for each in comparisons(effects))
    checked = 0
    for article in section.find("article"):
        figure = next(article.find("figure"))
        zero, slope, slack = scale_of(figure)
        for picture in figure.find("svg", role="img"):
            lead = next(leads)
            assert picture.one("line", class_="zero").percent("x1") == pytest.approx(zero, abs=slack)

            def at(value: float, zero: float = zero, slope: float = slope, slack: float = slack) -> object:
                return pytest.approx(zero + slope * value, abs=slack)

            assert next(picture.find("svg")).percent("x") == at(known(lead.estimate))
            for kind, low, high in (
                ("inner", lead.ci_lower, lead.ci_upper),
                ("outer", lead.anytime_ci_lower, lead.anytime_ci_upper),
            ):
                bars = list(picture.find("line", class_=kind))
                assert bool(bars) == (low is not None and high is not None)
                if low is not None and high is not None:
                    assert [bars[0].percent("x1"), bars[0].percent("x2")] == [at(low), at(high)]
                    checked += 1
    assert next(leads, None) is None
    assert checked


def test_balance_lies_on_its_axis_too() -> None:
    figure = page_of("many").one("section", id="trust").one("figure")
    zero, slope, slack = scale_of(figure)
    for picture in figure.find("svg", role="img"):
        told = [shown(part.rsplit(" ", 1)[1]) for part in picture.one("desc").text.split(", ")]
        marks = [mark.percent("x") for mark in picture.find("svg")]
        assert len(told) == len(marks) == 4
        for number, mark in zip(told, marks, strict=True):
            assert mark == pytest.approx(zero + slope * number.value, abs=slack + slope * number.rounding)


@EVERY
def test_counts_and_shares(name: str) -> None:
    trial, effects = case(name), effects_of(name)
    page = page_of(name)
    assert page.one("p", class_="lead").text.startswith(f"{trial.n:,} record")
    arms = next(table for table in tables(page.one("section", id="trust")) if table.caption == "Arms")
    assert [row[0] for row in arms.rows] == list(trial.plan.arms)
    for arm, planned, share, seen, expected in arms.rows:
        assert matches(planned, trial.plan.arms[arm])
        assert shown(seen).value == effects.sample_ratio.observed[arm]
        assert matches(expected, effects.sample_ratio.expected[arm])
        if trial.n:
            total = sum(effects.sample_ratio.observed.values())
            assert matches(share, effects.sample_ratio.observed[arm] / total)
    assert trial.plan.fingerprint in [code.text for code in page.find("code")]
    assert fa.Plan.loads(page.one("pre").raw) == trial.plan


def test_faults_are_told_by_arm_and_reason() -> None:
    effects = effects_of("faulty")
    trust = page_of("faulty").one("section", id="trust")
    by_arm, reasons = (
        next(table for table in tables(trust) if table.caption == caption)
        for caption in ("Records left out, by arm", "Faults")
    )
    assert effects.dropped == {"": 3, "arm0": 2, "arm1": 9}
    for arm, taken, left_out, share in by_arm.rows[:2]:
        assert (shown(taken).value, shown(left_out).value) == (effects.counts[arm], effects.dropped[arm])
        assert matches(share, effects.dropped[arm] / (effects.counts[arm] + effects.dropped[arm]))
    assert by_arm.rows[2][:3] == ["arm unknown or unread", "–", "3"]
    told = [(column, rule, "" if arm == "–" else arm, int(n)) for column, rule, arm, n in reasons.rows]
    assert told == [(f.column, f.rule, f.arm, f.records) for f in effects.faults]


def test_a_failing_sample_ratio_stands_before_everything_else() -> None:
    page = page_of("failing")
    alarm = page.one("header").one("div", class_="alarm")
    assert "Find out why before you trust any effect." in alarm.text
    assert "Fails" in alarm.text
    check = next(page.one("section", id="trust").find("article"))
    assert "fails" in (check.attributes["class"] or "")
    assert not list(page_of("large").find("div", class_="alarm"))


def test_notes_are_all_there() -> None:
    for name in CASES:
        effects, text = effects_of(name), page_of(name).one("section", id="trust").text
        assert all(re.sub(r"[ \n]+", " ", note) in text for note in effects.notes)


def test_among_many_comparisons_corrected_p_values_decide() -> None:
    effects, page = effects_of("many"), page_of("many")
    assert "The verdicts allow for 24 comparisons (Holm)" in page.one("section", id="glance").text
    clear = [each.lead.p_adjusted < 0.05 for each in comparisons(effects) if each.lead.p_adjusted is not None]
    said = ["not decided yet" not in p.text for p in page.find("p", class_="finding")]
    assert said == clear
    assert 0 < sum(clear) < len(clear)


# What it does not hold


def test_no_replicate_of_the_bootstrap_is_on_the_page() -> None:
    trial = case("resampled")
    effects = trial.effects()
    plan, [each] = trial.plan, comparisons(effects)
    assert each.bootstrap is not None
    found = distribution(each.bootstrap.estimator, Question(arms_of(trial.tallies), list(plan.arms.values()), 1, 0))
    text = re.sub(r"<style>.*?</style>", "", trial.report().html, flags=re.DOTALL)
    assert all(f"{value:.5g}" not in text for value in found.effects)
    # Of the spread there are five quantiles, to two digits of the error.
    spread = spreads(effects, plan, arms_of(trial.tallies))["revenue", "treatment"]
    caption = next(c.text for c in parsed(text).find("figcaption") if "replicates" in c.text)
    quantiles = [shown(words) for words in re.findall(r"%: (\S+?)(?:;|\.$)", caption)]
    assert len(quantiles) == 5
    for quantile, exact in zip(quantiles, np.quantile(found.effects, [0.05, 0.25, 0.5, 0.75, 0.95]), strict=True):
        assert abs(quantile.value - exact) <= quantile.rounding
        assert quantile.rounding >= known(each.bootstrap.std_error) / 200
    assert len(spread.quantiles) == 5


def test_effects_alone_refer_to_the_trials_report_for_the_spread() -> None:
    text = parsed(effects_page(effects_of("resampled")).html).text
    assert "Bootstrap (interacted): 250 replicates" in text
    assert "The trial's own report shows their distribution." in text
    assert "too few replicates" not in text
    assert "The trial's own report shows" not in page_of("resampled").text


@pytest.mark.parametrize(
    ("covariates", "lead", "resampled"), [(1, "adjusted", "interacted"), (0, "difference", "difference")]
)
def test_the_bootstrap_is_told_of_also_where_another_kind_of_error_leads(
    covariates: int, lead: str, resampled: str
) -> None:
    plan, rows = make_trial(7, n=1200, covariates=covariates, units=True)
    trial = folded(replaced(plan, bootstrap=210), rows)
    [each] = comparisons(trial.effects())
    assert (each.lead.se_kind, each.lead.estimator) == ("jackknife", lead)
    assert each.bootstrap is not None
    assert (each.bootstrap.se_kind, each.bootstrap.estimator) == ("bootstrap", resampled)
    page = parsed(trial.report().html)
    assert f"Bootstrap ({resampled}): 210 replicates" in page.text
    assert any("replicates of the effect are distributed" in caption.text for caption in page.find("figcaption"))


def test_effects_without_a_bootstrap_lead_say_nothing_of_replicates() -> None:
    assert spreads(effects_of("large"), case("large").plan, arms_of(case("large").tallies)) == {}
    assert "Bootstrap (" not in page_of("large").text


def test_no_identifier_is_on_the_page() -> None:
    for name in ("small", "resampled"):
        assert not re.search(r"u0000000\d\d", report_of(name))


# Names


@pytest.mark.parametrize("name", [HOSTILE, "$x^2$ {{7*7}} %s `ls`", "日本語 العربية", "x" * 300])
def test_a_name_is_text_and_nothing_else(name: str) -> None:
    tame, named = (parsed(renamed(each).report().html) for each in ("tame", name))
    assert Counter(e.name for e in named.find()) == Counter(e.name for e in tame.find())
    keys = [tuple(e.attributes) for e in named.find()]
    assert keys == [tuple(e.attributes) for e in tame.find()]
    text = re.sub(r"[ \n]+", " ", named.text)
    assert text.count(f"{name}y") > 3
    assert text.count(f"{name}0") > 3


# Effects alone


@EVERY
def test_effects_give_the_page_without_balance_and_without_what_was_kept(name: str) -> None:
    effects = effects_of(name)
    again = fa.Effects.from_json(effects.to_json())
    page, whole = parsed(effects_page(effects).html), page_of(name)
    first = ["glance"] if any(effects.counts.values()) else []
    assert [s.attributes["id"] for s in page.find("section")] == [*first, "asked", "found", "trust"]
    assert [s.attributes["id"] for s in whole.find("section")] == [*first, "asked", "found", "trust", "kept", "solved"]
    assert page.one("section", id="asked").text == whole.one("section", id="asked").text
    assert parsed(effects_page(again).html).one("section", id="trust").text == page.one("section", id="trust").text
