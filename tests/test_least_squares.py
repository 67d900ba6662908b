"""The regression that is updated for ever, against certified, published and exact answers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import solve_triangular

import foldaway as fa
from exact import digits, exact_coefficients
from foldaway.numerics.block import Floats
from hard_sets import HARD
from nist import NAMES, certified, wampler
from sizes import mostly_slow
from ways import WAYS, Way, at_once, new

DATA = Path(__file__).parent / "data"


ways = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


# Certified by NIST.

PROMISED = {"Norris": 12, "Longley": 10, "NoInt1": 13, "NoInt2": 13, "Wampler1": 8, "Wampler2": 8, "Wampler3": 6}


@ways
@pytest.mark.parametrize("name", NAMES)
def test_nists_certified_coefficients(name: str, way: Way) -> None:
    known = certified(name)
    assert digits(way(known.X, known.y).coef, known.coef) >= PROMISED[name]


@ways
@pytest.mark.parametrize("name", NAMES)
def test_nists_certified_errors(name: str, way: Way) -> None:
    known = certified(name)
    fit = way(known.X, known.y)
    assert fit.n == len(known.y)
    assert fit.df == len(known.y) - len(known.coef)
    if known.rss:
        assert digits(np.array([fit.rss]), np.array([known.rss])) >= 11
        assert digits(fit.std_error(), known.std_error) >= 11
    else:  # an exact fit: nothing is left but rounding of the response
        assert fit.rss <= (1e-14 * np.linalg.norm(known.y)) ** 2
        assert np.all(fit.std_error() <= 1e-9)


# The same kind of set, not in the folder.


@ways
@pytest.mark.parametrize(("scale", "least"), [(100, 6.5), (10_000, 4.5)], ids=["Wampler4", "Wampler5"])
def test_wamplers_sets_with_more_noise(scale: float, least: float, way: Way) -> None:
    known = wampler(scale)
    fit = way(known.X, known.y)
    np.testing.assert_array_equal(known.coef, 1)
    assert digits(fit.coef, known.coef) >= least
    assert digits(fit.std_error(), known.std_error) >= 11


def householder(X: Floats, y: Floats) -> Floats:
    """Batch QR on all rows, as NumPy has it."""
    R: Any = np.linalg.qr(np.column_stack([X, y]), mode="r")
    k = X.shape[1]
    coef: Floats = solve_triangular(R[:k, :k], R[:k, k])
    return coef


DRAWS = 9


def median_digits(draw: Callable[[np.random.Generator], tuple[Floats, Floats]]) -> dict[str, float]:
    """Over several sets of a kind, for one set's digits are partly luck."""
    found: dict[str, list[float]] = {}
    for seed in range(DRAWS):
        X, y = draw(np.random.default_rng(seed))
        truth = exact_coefficients(X, y)
        for way in WAYS:
            found.setdefault(way.__name__, []).append(digits(way(X, y).coef, truth))
        found.setdefault("householder", []).append(digits(householder(X, y), truth))
    return {name: float(np.median(of)) for name, of in found.items()}


@pytest.mark.parametrize("draw", mostly_slow(HARD, HARD[0]), ids=lambda draw: draw.__name__)
def test_hard_sets_have_the_digits_of_batch_householder(draw: Any) -> None:
    found = median_digits(draw)
    batch = found.pop("householder")
    assert min(found.values()) >= batch - 0.7, (batch, found)


# Published by others.


def petersen() -> pd.DataFrame:
    return pd.read_csv(DATA / "petersen_test_data.txt", sep=r"\s+", names=["firm", "year", "x", "y"])


@pytest.mark.parametrize(
    ("cluster", "kind", "published"),
    [
        (None, "HC1", [0.0284, 0.0284]),
        ("firm", "CR1", [0.0670, 0.0506]),
        ("year", "CR1", [0.0234, 0.0334]),
    ],
)
def test_petersens_panel(cluster: str | None, kind: str, published: list[float]) -> None:
    rows = petersen()
    X = np.column_stack([np.ones(len(rows)), rows.x])
    fit = fa.LeastSquares(["const", "x"])
    if cluster is None:
        fit.fold(X, rows.y)
    else:  # a few clusters per call, each complete
        for part in np.array_split(rows[cluster].unique(), 4):
            mine = rows[cluster].isin(part).to_numpy()
            fit.fold(X[mine], rows.y[mine], cluster=rows[cluster][mine])
    assert fit.n == 5000
    assert [round(b, 4) for b in fit.coef] == [0.0297, 1.0348]
    assert [round(e, 4) for e in fit.std_error(kind)] == published


@ways
def test_statas_robust_errors_of_the_macro_data_to_every_digit(way: Way) -> None:
    rows = pd.read_csv(DATA / "macrodata.csv")
    growth = 400 * np.diff(np.log(rows[["realinv", "realgdp"]].to_numpy()), axis=0)
    X = np.column_stack([growth[:, 1], rows.realint[:-1], np.ones(202)])
    fit = way(X, growth[:, 0])
    for ours, published in (
        (fit.coef, [4.3742216647032, -0.61399696947899, -9.4816727746549]),
        (fit.std_error("HC1"), [0.32355452428856, 0.32772840315987, 1.3690593206013]),
    ):
        last = 10.0 ** (np.floor(np.log10(np.abs(published))) - 13)  # a unit of the fourteenth digit
        assert np.all(np.abs(ours - published) <= last)


# As statsmodels has it, on the kept rows.


@st.composite
def designs(draw: st.DrawFn) -> tuple[Floats, Floats, Floats | None, Any]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    k, n = draw(st.integers(1, 6)), draw(st.integers(30, 400))
    X = rng.normal(rng.normal(0, 2, k), 10.0 ** rng.uniform(-2, 2, k), (n, k))
    if draw(st.booleans()):
        X[:, 0] = 1
    y = X @ rng.normal(size=k) + rng.normal(size=n) * (1 + np.abs(X[:, -1]))
    weight = rng.uniform(0.1, 5, n) if draw(st.booleans()) else None
    names = np.array([f"cluster {c}" for c in range(max(8, n // 5))])
    return X, y, weight, rng.choice(names, n)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(designs(), st.integers(1, 4))
def test_every_covariance_is_that_of_statsmodels(design: tuple[Floats, Floats, Any, Any], calls: int) -> None:
    X, y, weight, cluster = design
    fit = new(X)
    for part in np.array_split(np.unique(cluster), calls):
        mine = np.isin(cluster, part)
        fit.fold(X[mine], y[mine], weight=None if weight is None else weight[mine], cluster=cluster[mine])
    model = sm.WLS(y, X, weights=1.0 if weight is None else weight)
    groups = {"groups": np.unique(cluster, return_inverse=True)[1]}
    theirs = {
        "classical": model.fit(method="qr"),
        "HC0": model.fit(method="qr", cov_type="HC0"),
        "HC1": model.fit(method="qr", cov_type="HC1"),
        "CR0": model.fit(method="qr", cov_type="cluster", cov_kwds=groups | {"use_correction": False}),
        "CR1": model.fit(method="qr", cov_type="cluster", cov_kwds=groups | {"use_correction": True}),
    }
    np.testing.assert_allclose(fit.rss, theirs["classical"].ssr, rtol=1e-9)
    assert (fit.n, fit.df) == (len(y), theirs["classical"].df_resid)
    for kind, result in theirs.items():
        assert np.all(np.abs(fit.coef - result.params) <= 1e-9 * np.maximum(np.abs(result.params), result.bse))
        np.testing.assert_allclose(fit.std_error(kind), result.bse, rtol=1e-9)
        scale = np.outer(result.bse, result.bse)
        assert np.all(np.abs(fit.covariance(kind) - result.cov_params()) <= 1e-9 * scale), kind


def test_a_tables_columns_are_taken_by_name() -> None:
    table = pd.DataFrame({"x": [2.0, 3, 5, 7], "const": 1.0})
    fit = fa.LeastSquares(["const", "x"])
    fit.fold(table, [1, 2, 4, 4])
    expected = at_once(table[["const", "x"]].to_numpy(), np.array([1.0, 2, 4, 4])).coef
    np.testing.assert_allclose(fit.coef, expected, rtol=1e-12)
    with pytest.raises(fa.RecordError, match="columns must be const, x"):
        fit.fold(table.rename(columns={"x": "z"}), [1, 2, 4, 4])


def test_input_may_be_any_array_of_numbers() -> None:
    X = [[1, 2], [1, 3], [1, 5], [1, 7]]
    y = [1, 2, 4, 4]
    expected = at_once(np.array(X, dtype=float), np.array(y, dtype=float)).coef
    kinds: list[tuple[Any, Any]] = [
        (X, y),
        (np.array(X, dtype=np.int8), np.array(y, dtype=np.float32)),
        (np.asfortranarray(X, dtype=float), np.array(y)[:, None]),
        (pd.DataFrame(X), pd.Series(y)),
        ([[Decimal(v) for v in row] for row in X], [Decimal(v) for v in y]),
        (np.array(X, dtype=float)[::-1][::-1], tuple(y)),
    ]
    for rows, response in kinds:
        fit = fa.LeastSquares(["a", "b"])
        fit.fold(rows, response)
        np.testing.assert_allclose(fit.coef, expected, rtol=1e-12)


def test_nothing_given_is_changed() -> None:
    X, y = np.random.default_rng(1).normal(size=(50, 3)), np.random.default_rng(2).normal(size=50)
    weight, cluster = np.linspace(1, 2, 50), np.arange(50)[::-1] // 5
    kept = [a.copy() for a in (X, y, weight, cluster)]
    fit = fa.LeastSquares(["a", "b", "c"])
    fit.fold(X, y, weight=weight, cluster=cluster)
    fit.fold(X[0], y[0])
    for array, before in zip((X, y, weight, cluster), kept, strict=True):
        np.testing.assert_array_equal(array, before)


def test_adding_leaves_both_as_they_were() -> None:
    X, y = np.random.default_rng(3).normal(size=(60, 2)), np.random.default_rng(4).normal(size=60)
    a, b = at_once(X[:20], y[:20]), at_once(X[20:], y[20:])
    before = a.coef, b.coef, a.covariance("HC1"), b.covariance("HC1")
    both = a + b
    both.fold(X, y)
    for now, then in zip((a.coef, b.coef, a.covariance("HC1"), b.covariance("HC1")), before, strict=True):
        np.testing.assert_array_equal(now, then)
    assert (a.n, b.n, both.n) == (20, 40, 120)


def test_no_rows_are_no_change() -> None:
    fit = at_once(np.eye(3)[:, :2], np.arange(3.0))
    coef = fit.coef
    fit.fold(np.empty((0, 2)), np.empty(0))
    assert fit.n == 3
    np.testing.assert_array_equal(fit.coef, coef)


# What is refused: by an error of ours, that says nothing of the data, and without a trace.

SECRET = 8675309.25  # in each of the faulty calls, and in no message
WORD = "Rumpelstilzchen"
GOOD_X, GOOD_Y = [[1.0, SECRET], [1.0, 3.0], [1.0, 4.5]], [SECRET, 2.0, 3.0]

FAULTY: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "too many columns": ([[1, SECRET, 2]] * 3, GOOD_Y, {}),
    "too few columns": ([[SECRET]] * 3, GOOD_Y, {}),
    "flat X": ([SECRET, 1, 2], GOOD_Y, {}),
    "three dimensions": ([GOOD_X], GOOD_Y, {}),
    "long y": (GOOD_X, [SECRET] * 4, {}),
    "short y": (GOOD_X, [SECRET], {}),
    "y in two dimensions": (GOOD_X + GOOD_X[:1], [[SECRET, 1], [2, 3]], {}),
    "row for a number, too long": ([1, SECRET, 2], SECRET, {}),
    "many rows for a number": (GOOD_X, SECRET, {}),
    "NaN in X": ([[1, SECRET], [1, np.nan], [1, 2]], GOOD_Y, {}),
    "None in X": ([[1, SECRET], [1, None], [1, 2]], GOOD_Y, {}),
    "NaN in y": (GOOD_X, [SECRET, np.nan, 1], {}),
    "infinity in X": ([[1, SECRET], [1, np.inf], [1, 2]], GOOD_Y, {}),
    "minus infinity in y": (GOOD_X, [SECRET, -np.inf, 1], {}),
    "too large": ([[1, SECRET], [1, 1e41], [1, 2]], GOOD_Y, {}),
    "integer beyond floats": ([[1, SECRET], [1, 10**400], [1, 2]], GOOD_Y, {}),
    "NaN in a single row": ([1, np.nan], SECRET, {}),
    "NaN in a single y": ([1, SECRET], np.nan, {}),
    "infinity in a single row": ([np.inf, SECRET], 1.0, {}),
    "text in X": ([[1, SECRET], [1, WORD], [1, 2]], GOOD_Y, {}),
    "text in y": (GOOD_X, [SECRET, WORD, 1], {}),
    "text as a single y": ([1, SECRET], WORD, {}),
    "complex numbers": ([[1, SECRET], [1, 2j], [1, 2]], GOOD_Y, {}),
    "complex array": (np.array([[1, SECRET], [1, 2j], [1, 2]]), GOOD_Y, {}),
    "objects": ([[1, SECRET], [1, object()], [1, 2]], GOOD_Y, {}),
    "ragged X": ([[1, SECRET], [1], [1, 2]], GOOD_Y, {}),
    "ragged y": (GOOD_X, [[SECRET], [1, 2], [3]], {}),
    "negative weight": (GOOD_X, GOOD_Y, {"weight": [1, -SECRET, 1]}),
    "zero weight": (GOOD_X, GOOD_Y, {"weight": [SECRET, 0, 1]}),
    "NaN weight": (GOOD_X, GOOD_Y, {"weight": [SECRET, np.nan, 1]}),
    "infinite weight": (GOOD_X, GOOD_Y, {"weight": [SECRET, np.inf, 1]}),
    "text as weight": (GOOD_X, GOOD_Y, {"weight": [SECRET, WORD, 1]}),
    "too few weights": (GOOD_X, GOOD_Y, {"weight": [SECRET]}),
    "negative weight of a single row": ([1, SECRET], 1.0, {"weight": -SECRET}),
    "too few clusters": (GOOD_X, GOOD_Y, {"cluster": [WORD]}),
    "clusters in two dimensions": (GOOD_X, GOOD_Y, {"cluster": [[WORD], [WORD], [WORD]]}),
    "a cluster for rows": (GOOD_X, GOOD_Y, {"cluster": WORD}),
    "missing cluster": (GOOD_X, GOOD_Y, {"cluster": [WORD, None, WORD]}),
    "NaN cluster": (GOOD_X, GOOD_Y, {"cluster": [SECRET, np.nan, SECRET]}),
    "NA cluster": (GOOD_X, GOOD_Y, {"cluster": pd.Series([1, None, 2], dtype="Int64")}),
    "cluster that is no time": (GOOD_X, GOOD_Y, {"cluster": np.array(["2020", "NaT", "2021"], dtype="M8[Y]")}),
    "clusters of mixed types": (GOOD_X, GOOD_Y, {"cluster": np.array([WORD, SECRET, 3], dtype=object)}),
    "clusters that are lists": (GOOD_X, GOOD_Y, {"cluster": [[WORD], [SECRET, 1], [3]]}),
}


def told(error: BaseException) -> Iterator[str]:
    """All that an error and those behind it say."""
    seen: set[int] = set()
    queue: list[BaseException | None] = [error]
    while queue:
        one = queue.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            yield from (str(one), repr(one), *getattr(one, "__notes__", ()))
            queue += [one.__cause__, one.__context__]


def assert_silent(error: BaseException) -> None:
    for text in told(error):
        assert WORD not in text
        assert "8675309" not in text
        assert "8.675309" not in text


@pytest.mark.parametrize(("X", "y", "options"), FAULTY.values(), ids=FAULTY)
@pytest.mark.parametrize("filled", [False, True], ids=["first", "later"])
def test_faulty_rows_are_refused_without_a_word_of_them(X: Any, y: Any, options: dict[str, Any], filled: bool) -> None:
    fit = fa.LeastSquares(["const", "x"])
    if filled:
        fit.fold([[1, 1], [1, 2], [1, 4], [1, 4]], [1, 2, 3, 5], cluster=[0, 0, 1, 2])
    before = repr(fit), fit.n, filled and fit.covariance("CR1").tobytes()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(fa.RecordError) as caught:
            fit.fold(X, y, **options)
    assert_silent(caught.value)
    assert (repr(fit), fit.n, filled and fit.covariance("CR1").tobytes()) == before


@pytest.mark.parametrize("n", [20_000, 100_000], ids=["some blocks", "several workers"])
def test_a_fault_in_the_last_of_many_rows_refuses_them_all(n: int) -> None:
    X, y = np.ones((n, 2)), np.zeros(n)
    X[:, 1] = np.arange(n)
    X[-1, 1], y[-1] = SECRET, np.nan
    fit = at_once(np.array([[1.0, 1], [1, 2], [1, 4]]), np.array([1.0, 2, 2]))
    before = fit.coef
    with pytest.raises(fa.RecordError, match=r"y: 1\b") as caught:
        fit.fold(X, y)
    assert_silent(caught.value)
    assert fit.n == 3
    np.testing.assert_array_equal(fit.coef, before)


def test_faults_are_counted_by_column() -> None:
    fit = fa.LeastSquares(["const", "dose"])
    with pytest.raises(fa.RecordError, match=r"dose: 2, y: 1\b"):
        fit.fold(np.array([[1, np.nan], [1, np.inf], [1, 2]]), [1, 2, np.nan])


@pytest.mark.parametrize(
    ("columns", "X"),
    [
        (["const", "x", "x again"], [[1, v, v] for v in (1.0, 2, 4, 7, SECRET)]),
        (["const", "x", "sum"], [[1, v, v + 1] for v in (1.0, 2, 4, 7, SECRET)]),
        (["const", "x", "level"], [[1, v, 5] for v in (1.0, 2, 4, 7, SECRET)]),
        (["const", "x", "never"], [[1, v, 0] for v in (1.0, 2, 4, 7, SECRET)]),
    ],
)
@pytest.mark.parametrize(
    "ask",
    [lambda fit: fit.coef, lambda fit: fit.rss, lambda fit: fit.covariance("HC0"), lambda fit: fit.std_error()],
    ids=["coef", "rss", "covariance", "std_error"],
)
def test_collinear_columns_are_named(columns: list[str], X: Any, ask: Callable[[fa.LeastSquares], Any]) -> None:
    fit = fa.LeastSquares(columns)
    fit.fold(X, [1, 2, 3, 4, SECRET])
    with pytest.raises(fa.EstimateError, match=f"collinear.*{columns[2]}") as caught:
        ask(fit)
    assert_silent(caught.value)
    fit.fold(np.array([[1, 3, 9], [1, 5, 2], [1, 1, 1.5]]), [1, 2, 2])  # a further direction mends it
    assert np.isfinite(fit.coef).all()


def test_too_few_rows_for_coefficients_or_errors() -> None:
    fit = fa.LeastSquares(["const", "x"])
    for n in range(2):
        with pytest.raises(fa.EstimateError, match=f"2 coefficients need at least 2 rows; there are {n}"):
            _ = fit.coef
        fit.fold([1, n], n)
    np.testing.assert_allclose(fit.coef, [0, 1], atol=1e-15)
    for kind in ("classical", "HC0", "HC1"):
        with pytest.raises(fa.EstimateError, match="not more records than coefficients"):
            fit.covariance(kind)
    assert "n=2" in repr(fit)
    assert repr(fa.LeastSquares(["a", "b"])) == "LeastSquares: n=0 | a, b"


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("HC2", "difference of means only"),
        ("HC3", "difference of means only"),
        ("hc1", "no standard error"),
        ("", "no standard error"),
        ("CR0", "need every record to have come with its unit"),
        ("CR1", "need every record to have come with its unit"),
    ],
)
def test_errors_that_there_are_not(kind: str, reason: str) -> None:
    fit = at_once(np.array([[1.0, 1], [1, 2], [1, 4], [1, 4]]), np.array([1.0, 2, 2, 5]))
    with pytest.raises(fa.EstimateError, match=reason):
        fit.covariance(kind)
    with pytest.raises(fa.EstimateError, match=reason):
        fit.std_error(kind)


@pytest.mark.parametrize("clustered_first", [True, False])
def test_rows_without_a_cluster_are_clusters_of_their_own(clustered_first: bool) -> None:
    rng = np.random.default_rng(3)
    X, y = np.column_stack([np.ones(300), rng.normal(size=300)]), rng.normal(size=300)
    ids = rng.integers(0, 20, 100)
    names = np.concatenate([ids, 1000 + np.arange(200)])
    fit, other = fa.LeastSquares(["const", "x"]), fa.LeastSquares(["const", "x"])
    for clustered in (clustered_first, not clustered_first):
        if clustered:
            fit.fold(X[:100], y[:100], cluster=ids)
        else:
            fit.fold(X[100:200], y[100:200])
    other.fold(X[200:], y[200:])
    whole = fit + other
    for row, response in zip(X[:5], y[:5], strict=True):  # single rows after clusters
        whole.fold(row, response)
    rows, responses = np.vstack([X, X[:5]]), np.concatenate([y, y[:5]])
    groups = np.concatenate([names, 5000 + np.arange(5)])
    kept = sm.OLS(responses, rows).fit(cov_type="cluster", cov_kwds={"groups": groups})
    np.testing.assert_allclose(whole.std_error("CR1"), kept.bse, rtol=1e-10)


def test_one_cluster_is_too_few_for_cr1() -> None:
    fit = fa.LeastSquares(["const", "x"])
    fit.fold([[1, 1], [1, 2], [1, 4], [1, 4]], [1, 2, 2, 5], cluster=[7, 7, 7, 7])
    with pytest.raises(fa.EstimateError, match="at least two"):
        fit.std_error("CR1")


def test_robust_errors_have_to_be_asked_for_in_time() -> None:
    fit = fa.LeastSquares(["const", "x"], robust=False)
    fit.fold([[1, 1], [1, 2], [1, 4], [1, 4]], [1, 2, 2, 5], cluster=[1, 2, 3, 4])
    assert np.isfinite(fit.std_error()).all()
    for kind in ("HC0", "HC1", "CR0", "CR1"):
        with pytest.raises(fa.EstimateError, match="robust=True"):
            fit.std_error(kind)


@pytest.mark.parametrize(
    "other",
    [
        fa.LeastSquares(["const", "z"]),
        fa.LeastSquares(["x", "const"]),
        fa.LeastSquares(["const"]),
        fa.LeastSquares(["const", "x"], robust=False),
    ],
    ids=["other name", "other order", "fewer columns", "not robust"],
)
def test_only_like_regressions_add_up(other: fa.LeastSquares) -> None:
    fit = at_once(np.array([[1.0, 1], [1, 2], [1, 4]]), np.array([1.0, 2, 2]))
    fit.columns = ("const", "x")
    with pytest.raises(fa.FoldawayError, match="same columns"):
        fit + other
    assert (fit.n, other.n) == (3, 0)


def test_a_regression_adds_to_nothing_else() -> None:
    with pytest.raises(TypeError):
        fa.LeastSquares(["x"]) + 1  # type: ignore[operator]


@pytest.mark.parametrize("columns", [[], "const", ["x", "x"]], ids=["none", "a word", "twice"])
def test_columns_need_names_of_their_own(columns: Any) -> None:
    with pytest.raises(ValueError, match="name"):
        fa.LeastSquares(columns)


# By group.


def in_groups(rows: pd.DataFrame, key: bytes, calls: int) -> fa.LeastSquares:
    """Petersen's panel by firm, every firm scattered over all calls."""
    fit = fa.LeastSquares(["const", "x"], groups=128, key=key)
    for part in range(calls):
        mine = rows[part::calls]
        fit.fold(np.column_stack([np.ones(len(mine)), mine.x]), mine.y, cluster=mine.firm)
    return fit


def test_the_jackknife_is_near_the_published_clustered_error_however_firms_are_scattered() -> None:
    rows = petersen()
    errors = [in_groups(rows, key.to_bytes(16, "little"), 3).std_error("jackknife") for key in range(40)]
    assert np.mean(errors, axis=0) == pytest.approx([0.0670, 0.0506], rel=0.03)


def test_no_batching_or_adding_changes_the_jackknife() -> None:
    rows, key = petersen(), bytes(16)
    whole = in_groups(rows, key, 1)
    halves = in_groups(rows[:1700], key, 2) + in_groups(rows[1700:], key, 5)
    for other in (in_groups(rows, key, 40), halves):
        assert other.coef == pytest.approx(whole.coef, rel=1e-12)
        assert other.std_error("jackknife") == pytest.approx(whole.std_error("jackknife"), rel=1e-9)


def test_weights_count_as_repeated_rows_in_the_jackknife() -> None:
    rows = petersen()[:600]
    X = np.column_stack([np.ones(600), rows.x])
    times = np.arange(600) % 3 + 1
    weighted, repeated = (fa.LeastSquares(["const", "x"], groups=16, key=bytes(16)) for _ in range(2))
    weighted.fold(X, rows.y, weight=times, cluster=rows.firm)
    repeated.fold(np.repeat(X, times, axis=0), np.repeat(rows.y, times), cluster=np.repeat(rows.firm, times))
    assert weighted.std_error("jackknife") == pytest.approx(repeated.std_error("jackknife"), rel=1e-9)


def test_what_a_jackknife_cannot_do_is_said() -> None:
    plain, grouped = fa.LeastSquares(["const"]), fa.LeastSquares(["const"], groups=128)
    for fit in (plain, grouped):
        fit.fold(np.ones((9, 1)), np.arange(9), cluster=np.arange(9) % 3)
    with pytest.raises(fa.EstimateError, match="needs groups"):
        plain.std_error("jackknife")
    with pytest.raises(fa.EstimateError, match="at least 5 groups"):
        grouped.std_error("jackknife")
    with pytest.raises(fa.EstimateError, match="robust tally"):
        grouped.std_error("HC1")
    with pytest.raises(fa.EstimateError, match="`groups`"):
        plain + grouped
    with pytest.raises(fa.EstimateError, match="key"):
        grouped + fa.LeastSquares(["const"], groups=128)
    with pytest.raises(ValueError, match="power of two"):
        fa.LeastSquares(["const"], groups=100)
    before = grouped.coef, grouped.n
    with pytest.raises(fa.RecordError, match="missing cluster"):
        grouped.fold(np.ones((2, 1)), [1, 2], cluster=np.array(["a", None]))
    assert (grouped.coef, grouped.n) == before
