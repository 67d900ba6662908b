"""Outcomes: what they are called, which values they need, how they are written, and what is wrong with some."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest

import foldaway as fa
from foldaway.plan.outcomes import KINDS, Bins, Value
from plans import SMALL

EVERY: list[Any] = [
    "revenue",
    fa.Mean("revenue", cap=(0, 500)),
    fa.Mean("complaints", name="unhappy", better="lower", margin=0.002, label="Complaints", measure="per visit"),
    fa.Share("latency_ms", above=1000, better="lower", question="better"),
    fa.Share("latency_ms", below=0.1),
    fa.Share("stars", equals=5),
    fa.Ratio("clicks", "views"),
    fa.Ratio("clicks", "views", name="where both are", missing="allowed"),
    fa.Quantile("latency_ms", (0.5, 0.999), bounds=(1, 60_000), better="lower", label="Latency"),
    fa.Quantile("latency_ms", (0.25, 0.75), bounds=(-1, 1), resolution=0.1, name="near zero"),
    fa.Total("revenue"),
    fa.Survival("days", "relapsed", until=365),
    fa.Survival("days", "relapsed", until=365, bins=73, at=(90, 180), missing="allowed"),
]
NAMES = [
    "revenue",
    "revenue within [0, 500]",
    "unhappy",
    "latency_ms > 1000",
    "latency_ms < 0.1",
    "stars = 5",
    "clicks / views",
    "where both are",
    "latency_ms p50",
    "latency_ms p99.9",
    "near zero p25",
    "near zero p75",
    "total revenue",
    "mean days within 365",
    "days over 90",
    "days over 180",
]


def plan_of(*outcomes: Any, **settings: Any) -> fa.Plan:
    return fa.Plan(**{**SMALL, "outcomes": list(outcomes), **settings})


def test_every_kind_comes_back_however_it_is_written() -> None:
    plan = plan_of(*EVERY)
    assert [outcome.name for outcome in plan.outcomes] == NAMES
    assert {type(outcome) for outcome in plan.outcomes} == set(KINDS.values())
    for text in (plan.to_toml(), plan.to_json(), plan.canonical().decode()):
        again = fa.Plan.loads(text)
        assert again.outcomes == plan.outcomes
        assert again.fingerprint == plan.fingerprint
    tables = [{"kind": type(each).KIND, **msgspec.structs.asdict(each)} for each in plan.outcomes]
    assert plan_of(*tables).canonical() == plan.canonical()


def test_what_says_no_more_than_a_column_is_that_column() -> None:
    short = plan_of("y")
    long: list[Any] = [
        fa.Mean("y"),
        fa.Mean("y", name="y"),
        {"column": "y"},
        {"kind": "mean", "column": "y", "cap": None},
    ]
    for outcome in long:
        assert plan_of(outcome).fingerprint == short.fingerprint
    assert json.loads(short.canonical())["outcomes"] == ["y"]
    # As it was before outcomes were objects.
    assert short.fingerprint == "fc00939ca0522a888e9f91580d84c2668f20094de51b91537dc2c28ac9854c24"


def test_a_file_mixes_names_and_tables() -> None:
    head = 'name = "small"\narm = "group"\n'
    arms = "arms = { a = 0.5, b = 0.5 }\n"
    inline = 'outcomes = ["y", { kind = "share", column = "z", above = 1 }]\n'
    tables = '[[outcomes]]\ncolumn = "y"\n[[outcomes]]\nkind = "share"\ncolumn = "z"\nabove = 1.0\n'
    expected = plan_of("y", fa.Share("z", above=1))
    assert fa.Plan.loads(head + inline + arms) == fa.Plan.loads(head + arms + tables) == expected


def test_outcomes_that_need_the_same_value_share_it() -> None:
    plan = plan_of(*EVERY)
    names = [value.name for value in plan.values]
    assert len(set(names)) == len(names) == 13
    assert plan.columns == ("1", *names)
    assert plan.measured == ("revenue", "complaints", "latency_ms", "stars", "clicks", "views", "days", "relapsed")
    total, mean = plan.outcome("total revenue"), plan.outcomes[0]
    assert plan.places(total) == plan.places(mean) == (0,)
    assert plan.read_from(plan.values[0]) == [mean, total]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Value("x"), [-1, 0.5, 2, np.nan]),
        (Value("x", cap=(0, 1)), [0, 0.5, 1, np.nan]),
        (Value("x", test="above", threshold=0.5), [0, 0, 1, np.nan]),
        (Value("x", test="below", threshold=0.5), [1, 0, 0, np.nan]),
        (Value("x", test="equals", threshold=0.5), [0, 1, 0, np.nan]),
    ],
)
def test_a_value_is_what_its_name_says(value: Value, expected: list[float]) -> None:
    np.testing.assert_array_equal(value.of(np.array([-1, 0.5, 2, np.nan])), expected)


@pytest.mark.parametrize(
    "bins",
    [Bins("x", 1, 60_000, 0.01), Bins("x", 0.2, 0.3, 0.5), Bins("x", -3, 5, 0.001), Bins("x", 0, 1, 0.3)],
    ids=str,
)
def test_a_value_lies_between_the_edges_of_its_bin(bins: Bins) -> None:
    edges = np.array([-np.inf, *bins.edges, np.inf])
    span = bins.upper - bins.lower
    inside = np.random.default_rng(1).uniform(bins.lower - span / 9, bins.upper + span / 9, 5_000)
    values = np.concatenate([inside, [bins.lower, bins.upper, -1e30, 1e30, 0.0, -0.0, 5e-324]])
    codes = bins.of(values)
    assert bins.number == len(edges) - 1
    rounding = 1e-12 * max(abs(bins.lower), abs(bins.upper))
    assert np.all(edges[codes] <= values + rounding)
    assert np.all(values <= edges[codes + 1] + rounding)
    assert set(bins.of(np.array([bins.lower, bins.upper], dtype=float))) <= set(range(1, bins.number - 1))
    widths = np.diff(bins.edges) / (bins.edges[:-1] if bins.logarithmic else span)
    assert np.all(widths <= bins.resolution * (1 + 1e-9))
    assert bins.of(np.array([np.nan])) == [-1]
    assert bins.of(np.empty(0)).dtype == np.int16


BAD: dict[str, tuple[Any, str]] = {
    "a ratio of itself": (lambda: fa.Ratio("y", "y"), "the ratio of 'y' to itself is always 1: name two columns."),
    "survival of itself": (
        lambda: fa.Survival("t", "t", until=9),
        "'t' cannot be both `time` and `event`: name two columns.",
    ),
    "survival after its end": (
        lambda: fa.Survival("t", "e", until=9, at=(10,)),
        "`at` of 't over 10' must be times above 0 and at most `until`.",
    ),
    "survival within a bin": (
        lambda: fa.Survival("t", "e", until=100, bins=20, at=(7,)),
        "survival is known at the ends of bins, every 5, which 7 is not: choose another `at`, or other `bins`.",
    ),
    "a cap upside down": (
        lambda: fa.Mean("y", cap=(5, 0)),
        "the cap of 'y' must be two numbers, the lower one first.",
    ),
    "a cap of one number": (
        lambda: fa.Mean("y", cap=5),  # type: ignore[arg-type]
        "`outcomes.cap` must be the lowest and the highest number, as in [0, 500].",
    ),
    "a share of nothing": (lambda: fa.Share("y"), "the share of 'y' needs one of `above`, `below` and `equals`."),
    "two tests": (
        lambda: fa.Share("y", above=1, below=2),
        "the share of 'y' needs one of `above`, `below` and `equals`.",
    ),
    "a margin of the wrong sign": (
        lambda: fa.Mean("y", better="lower", margin=-0.1),
        "`outcomes.margin` must be a number above 0 in the outcome's own unit of measure, or a percentage of the "
        'control\'s level such as "0.5%".',
    ),
    "a margin that no share can reach": (
        lambda: fa.Share("y", above=0, better="lower", margin=1.0),
        "the margin of 'y > 0' must be below 1: shares differ by no more than that.",
    ),
    "a margin without a direction": (
        lambda: fa.Mean("y", margin=0.1),
        "the margin of 'y' needs `better`: whether higher or lower values are better.",
    ),
    "a question without a direction": (
        lambda: fa.Mean("y", question="better"),
        "the question of 'y' needs `better`: whether higher or lower values are better.",
    ),
    "a guardrail without a margin": (
        lambda: fa.Mean("y", better="lower", question="not worse"),
        "\"not worse\" needs a `margin`: how far 'y' may differ and still count as that.",
    ),
    "alike without a margin": (
        lambda: fa.Mean("y", question="alike"),
        "\"alike\" needs a `margin`: how far 'y' may differ and still count as that.",
    ),
    "no such question": (
        lambda: fa.Mean("y", question="superior"),  # type: ignore[arg-type]
        '`outcomes.question` must be "better", "not worse" or "alike".',
    ),
    "no such kind": ({"kind": "median", "column": "y"}, "an outcome has an unknown kind; the kinds are mean, share, "),
    "another kind's setting": (
        {"column": "y", "above": 1},
        '\'above\' is not a setting of an outcome of kind "mean", but of kind "share".',
    ),
    "a plan's setting": ({"column": "y", "arm": "g"}, "`arm` belongs at the top of the plan, before the first table."),
    "a typo": (
        {"column": "y", "bettr": "lower"},
        "'bettr' is not a setting of an outcome of kind \"mean\"; did you mean 'better'?",
    ),
    "a percentile": (
        lambda: fa.Quantile("y", (95,), bounds=(1, 5)),
        "the quantiles of 'y' must lie between 0 and 1: the median is 0.5.",
    ),
    "a number of quantiles": (
        lambda: fa.Quantile("y", 0.5, bounds=(1, 5)),  # type: ignore[arg-type]
        "`outcomes.quantiles` must be a list of numbers between 0 and 1, as in [0.5, 0.95].",
    ),
    "a quantile twice": (
        lambda: fa.Quantile("y", (0.5, 0.5), bounds=(1, 5)),
        "the quantiles of 'y' contain one of them twice.",
    ),
    "bounds upside down": (
        lambda: fa.Quantile("y", (0.5,), bounds=(5, 1)),
        "the bounds of 'y' must be two numbers, the lower one first.",
    ),
    "a huge histogram": (
        lambda: fa.Quantile("y", (0.5,), bounds=(1e-9, 1e9), resolution=0.001),
        "the histogram of 'y' would have 41,470 bins, more than 10,000: choose narrower `bounds` or a coarser",
    ),
    "no bounds": (
        {"kind": "quantile", "column": "y", "quantiles": [0.5]},
        'an outcome of kind "quantile" needs `bounds`.',
    ),
    "half a ratio": ({"kind": "ratio", "numerator": "y"}, 'an outcome of kind "ratio" needs `denominator`.'),
    "no column": (fa.Mean, "`outcomes` must be a list of outcomes"),
    "a column without a name": ("", "`outcomes.column` must be the name of a column."),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_outcome_gets_one_sentence(case: str) -> None:
    made, sentence = BAD[case]
    with pytest.raises(fa.PlanError) as caught:
        plan_of(made() if callable(made) and not isinstance(made, type) else made)
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


_RELAPSE = fa.Survival("t", "e", until=9)
_MEDIAN = fa.Quantile("y", (0.5,), bounds=(1, 5))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"outcomes": ["y", fa.Mean("z", name="y")]}, "two outcomes are called 'y': give one of them another `name`."),
        ({"outcomes": [fa.Share("y", above=1), "y > 1"]}, "two outcomes are called 'y > 1'"),
        ({"outcomes": [fa.Ratio("y", "z")], "moments": {}}, "'y / z' is read from sums by group: leave out `moments"),
        ({"outcomes": [fa.Ratio("y", "z")], "covariates": ["z"]}, "the column 'z' is used more than once"),
        (
            {"outcomes": [fa.Total("y")], "weight": "w"},
            "'total y' is a sum over unweighted records: leave out `weight`.",
        ),
        ({"outcomes": [_MEDIAN], "moments": {}}, "'y p50' is read from sums by group: leave out `moments"),
        (
            {"outcomes": [_RELAPSE], "federated": "sums"},
            "'mean t within 9' needs a histogram of exits. In a federated plan",
        ),
        ({"outcomes": [_RELAPSE], "moments": {}}, "'mean t within 9' is read from sums by group: leave out `moments"),
        ({"outcomes": [_MEDIAN], "federated": "sums"}, "'y p50' needs a histogram, which devices and sites"),
        (
            {"outcomes": [_MEDIAN], "release": 1.0},
            "'y p50' needs a histogram, which a `release` does not cover: leave out the quantile",
        ),
        (
            {"outcomes": [_MEDIAN, fa.Quantile("y", (0.5, 0.9), bounds=(1, 9))]},
            "two outcomes are called 'y p50': give one of them another `name`.",
        ),
        (
            {"outcomes": [_MEDIAN], "moments": {"estimators": ["difference"]}},
            "'y p50' is read from sums by group: leave out `moments",
        ),
        ({"outcomes": [fa.Mean("y", label="a\nb")]}, "names must not contain control characters"),
        (
            {"outcomes": ["y", "d"], "received": "d"},
            "the column 'd' is used more than once (outcomes, received); each column has one role.",
        ),
        (
            {"outcomes": [fa.Ratio("y", "z"), _MEDIAN], "received": "d"},
            "`received` gives the compliers' effect on means and shares; this plan has neither: leave it out.",
        ),
        (
            {"outcomes": [fa.Total("y")], "moments": {"estimators": ["difference"]}},
            "`moments.estimators` has 'difference', which fits no",
        ),
    ],
)
def test_outcomes_that_do_not_fit_their_plan_get_a_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(fa.PlanError) as caught:
        plan_of(**settings) if "outcomes" not in settings else fa.Plan(**{**SMALL, **settings})
    assert str(caught.value).startswith(sentence)


def test_every_kind_is_read_from_records_as_numpy_would() -> None:
    rng = np.random.default_rng(5)
    n = 3_000
    rows = {
        "group": rng.choice(["a", "b"], n),
        "u": rng.integers(0, 500, n),
        "revenue": rng.exponential(200, n),
        "complaints": rng.integers(0, 2, n).astype(bool),
        "latency_ms": rng.exponential(600, n),
        "stars": rng.integers(1, 6, n),
        "clicks": rng.poisson(1.0, n),
        "views": rng.poisson(5.0, n),
    }
    exactly = [each for each in plan_of(*EVERY).outcomes if each.missing == "refused" and each.binning is None]
    plan = plan_of(*exactly, unit="u")
    trial = fa.Trial(plan, key=bytes(16))
    for part in np.array_split(np.arange(n), 7):
        trial.fold({name: column[part] for name, column in rows.items()})
    b = rows["group"] == "b"

    def apart(values: Any) -> float:
        return float(values[b].mean() - values[~b].mean())

    expected = {
        "revenue": apart(rows["revenue"]),
        "revenue within [0, 500]": apart(np.minimum(rows["revenue"], 500)),
        "unhappy": apart(rows["complaints"].astype(float)),
        "latency_ms > 1000": apart(rows["latency_ms"] > 1000),
        "latency_ms < 0.1": apart(rows["latency_ms"] < 0.1),
        "stars = 5": apart(rows["stars"] == 5),
        "clicks / views": rows["clicks"][b].sum() / rows["views"][b].sum()
        - rows["clicks"][~b].sum() / rows["views"][~b].sum(),
        "total revenue": (rows["revenue"][b].sum() - rows["revenue"][~b].sum()) / 0.5,
    }
    for state in (trial, fa.Trial.loads(trial.dumps())):
        effects = state.effects()
        found = {row.outcome: row.estimate for row in effects if row.se_kind == "jackknife"}
        assert found == pytest.approx(expected, rel=1e-9)
        again = fa.Effects.from_json(effects.to_json())
        assert list(again) == list(effects)
        assert again.plan == effects.plan
