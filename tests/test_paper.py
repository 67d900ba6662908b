from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from foldaway import paper
from foldaway.errors import EstimateError
from foldaway.paper import Array

Clusters: TypeAlias = NDArray[np.int64]

PETERSEN = Path(__file__).parent / "data" / "petersen_test_data.txt"

seeds = st.integers(0, 2**32 - 1)
outcomes = st.floats(-1e6, 1e6)
quick = settings(max_examples=25, deadline=None)


def regression(seed: int, n: int = 120) -> tuple[Array, Array]:
    """Intercept, treatment and two covariates; the error's spread grows with the first covariate."""
    rng = np.random.default_rng(seed)
    d = np.arange(n) % 2.0
    covariates = rng.normal(size=(n, 2))
    X = np.column_stack([np.ones(n), d, covariates])
    y = X @ [3.0, 1.0, -2.0, 0.5] + (0.5 + np.abs(covariates[:, 0])) * rng.normal(size=n)
    return X, y


def clustered(seed: int, clusters: int = 60) -> tuple[Array, Array, Clusters]:
    """Treatment by cluster, sizes from 1 to 8, and an error that a cluster's records share in part."""
    rng = np.random.default_rng(seed)
    cluster = np.repeat(np.arange(clusters), rng.integers(1, 9, size=clusters))
    X = np.column_stack([np.ones(len(cluster)), cluster % 2.0])
    y = 2 + X[:, 1] + rng.normal(size=clusters)[cluster] + rng.normal(size=len(cluster))
    return X, y, cluster


def by_cluster(X: Array, y: Array, cluster: Clusters, coef: Array) -> Iterator[Array]:
    for j in np.unique(cluster):
        yield paper.client_score(X[cluster == j], y[cluster == j], coef)


# Means


@given(st.lists(outcomes, min_size=1))
def test_recursive_mean_is_the_mean(z: list[float]) -> None:
    assert paper.recursive_mean(iter(z)) == pytest.approx(np.mean(z), rel=1e-9, abs=1e-6)


@given(st.lists(outcomes, min_size=2), st.data())
def test_a_batch_moves_the_mean_as_its_records_would(z: list[float], data: st.DataObject) -> None:
    t = data.draw(st.integers(1, len(z) - 1))
    batch = paper.recursive_mean_batch(paper.recursive_mean(z[:t]), t, z[t:])
    assert batch == pytest.approx(paper.recursive_mean(z), rel=1e-9, abs=1e-6)


@given(st.lists(st.tuples(outcomes, st.integers(0, 3)), min_size=1))
def test_an_integer_weight_repeats_a_value(pairs: list[tuple[float, int]]) -> None:
    repeated = [z for z, w in pairs for _ in range(w)]
    weighted = paper.weighted_recursive_mean([z for z, _ in pairs], [w for _, w in pairs])
    assert weighted == pytest.approx(paper.recursive_mean(repeated), rel=1e-9, abs=1e-6)


def test_pate_is_the_scaled_difference_of_sums() -> None:
    rng = np.random.default_rng(1)
    y, d = rng.normal(size=50), rng.integers(0, 2, size=50)
    expected = (y[d == 1].sum() / 0.3 - y[d == 0].sum() / 0.7) / 50  # Eq. 5
    assert paper.pate(y, d, 0.3) == pytest.approx(expected)


def test_pate_is_unbiased_over_every_assignment() -> None:
    treated, control = np.array([3.0, -1.0, 4.0, 1.5]), np.array([2.0, 0.5, -3.0, 1.0])
    expectation = sum(
        np.prod(np.where(d, 0.3, 0.7)) * paper.pate(np.where(d, treated, control), d, 0.3)
        for d in product([0, 1], repeat=4)
    )
    assert expectation == pytest.approx((treated - control).mean())  # Eqs. 6 to 8


# Regression


@quick
@given(seeds, st.integers(12, 120))
def test_recursive_least_squares_is_least_squares_from_any_start(seed: int, start: int) -> None:
    X, y = regression(seed)
    fit, truth = paper.recursive_least_squares(X, y, start), sm.OLS(y, X).fit()
    np.testing.assert_allclose(fit.coef, np.linalg.lstsq(X, y)[0], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(fit.bread, truth.normalized_cov_params, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(fit.S, truth.ssr, rtol=1e-8)
    assert fit.n == len(y)


def test_iid_covariance_divides_by_one_less_than_statsmodels() -> None:
    X, y = regression(2)
    truth = sm.OLS(y, X).fit()
    ours = paper.iid_covariance(paper.recursive_least_squares(X, y, start=20))
    np.testing.assert_allclose(ours, truth.cov_params() * truth.df_resid / (truth.df_resid - 1), rtol=1e-8)


@pytest.mark.parametrize("start", [0, 3])
def test_too_few_starting_records_are_refused(start: int) -> None:
    X, y = regression(3)
    with pytest.raises(EstimateError, match="start from more"):
        paper.recursive_least_squares(X, y, start)


@quick
@given(seeds)
def test_weighted_recursive_least_squares_is_wls(seed: int) -> None:
    X, y = regression(seed)
    w = np.random.default_rng(seed).gamma(2.0, size=len(y))
    fit, truth = paper.weighted_recursive_least_squares(X, y, w, start=20), sm.WLS(y, X, weights=w).fit()
    np.testing.assert_allclose(fit.coef, truth.params, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(fit.bread, truth.normalized_cov_params, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(fit.S, truth.ssr, rtol=1e-8)


def test_an_integer_weight_repeats_a_record() -> None:
    X, y = regression(4)
    w = np.random.default_rng(4).integers(0, 4, size=len(y))
    weighted = paper.weighted_recursive_least_squares(X, y, w.astype(np.float64), start=20)
    repeated = paper.recursive_least_squares(np.repeat(X, w, axis=0), np.repeat(y, w), start=20)
    np.testing.assert_allclose(weighted.coef, repeated.coef, rtol=1e-8)
    np.testing.assert_allclose(weighted.bread, repeated.bread, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose([weighted.S, weighted.n], [repeated.S, repeated.n], rtol=1e-8)


# Bootstrap


def test_the_papers_worked_example() -> None:
    y, d, weights = [2.0, 1.0], [1, 0], [[1, 2, 0], [2, 1, 1]]
    assert paper.bootstrap_pate(y[:1], d[:1], 0.5, weights[:1]).tolist() == [4, 4, 0]
    assert paper.bootstrap_pate(y, d, 0.5, weights).tolist() == [0, 2, -2]


def test_each_replicate_of_the_pate_is_its_weighted_mean() -> None:
    rng = np.random.default_rng(5)
    y, d, weights = rng.normal(size=80), rng.integers(0, 2, size=80), rng.poisson(1.0, size=(80, 9))
    z = y * np.where(d == 1, 1 / 0.4, -1 / 0.6)
    expected = [np.average(z, weights=weights[:, b]) for b in range(9)]
    np.testing.assert_allclose(paper.bootstrap_pate(y, d, 0.4, iter(weights)), expected, rtol=1e-10)
    one_by_one = [paper.weighted_recursive_mean(z, weights[:, b]) for b in range(9)]
    np.testing.assert_allclose(one_by_one, expected, rtol=1e-10)


def test_each_replicate_of_a_regression_is_its_weighted_fit() -> None:
    X, y = regression(6)
    weights = np.random.default_rng(6).poisson(1.0, size=(100, 9))
    replicates = paper.bootstrap_least_squares(X, y, iter(weights), start=20)
    for b in range(9):
        w = np.concatenate([np.ones(20), weights[:, b]])
        np.testing.assert_allclose(replicates[b], sm.WLS(y, X, weights=w).fit().params, rtol=1e-8)


def test_weights_must_match_the_records_after_the_start() -> None:
    X, y = regression(7)
    with pytest.raises(EstimateError, match="for each of the 100 records after the start"):
        paper.bootstrap_least_squares(X, y, np.ones((120, 9)), start=20)
    with pytest.raises(ValueError, match="argument"):
        paper.bootstrap_pate(y, X[:, 1], 0.5, np.ones((119, 9)))


def test_a_cluster_is_resampled_whole() -> None:
    X, y, cluster = clustered(8, clusters=12)
    draws = np.random.default_rng(8).poisson(1.0, size=(12, 5))
    replicates = paper.cluster_bootstrap_pate(y, X[:, 1], cluster, 0.5, draws.__getitem__)
    regressions = paper.cluster_bootstrap_least_squares(X, y, cluster, draws.__getitem__, start=20)
    for b in range(5):
        drawn = np.repeat(np.arange(12), draws[:, b])
        resample = np.concatenate([np.flatnonzero(cluster == j) for j in drawn])
        assert replicates[b] == pytest.approx(np.mean(y[resample] * (4 * X[resample, 1] - 2)))
        later = np.concatenate([np.arange(20), resample[resample >= 20]])
        np.testing.assert_allclose(regressions[b], np.linalg.lstsq(X[later], y[later])[0], rtol=1e-8)


def test_the_cluster_bootstrap_finds_the_cluster_robust_error() -> None:
    X, y, cluster = clustered(9, clusters=300)
    draws = np.random.default_rng(9).poisson(1.0, size=(300, 1000))
    robust = sm.OLS(y, X).fit(cov_type="cluster", cov_kwds={"groups": cluster, "use_correction": False})
    replicates = paper.cluster_bootstrap_least_squares(X, y, cluster, draws.__getitem__, start=20)
    # 1000 draws tell a spread to some 2%; errors that ignore the clusters are off by far more.
    np.testing.assert_allclose(replicates.std(axis=0), robust.bse, rtol=0.1)
    assert np.all(sm.OLS(y, X).fit().bse < 0.8 * robust.bse)


def test_a_long_common_start_understates_the_variance() -> None:
    X, y = regression(10, n=400)
    weights = np.random.default_rng(10).poisson(1.0, size=(400, 1000))
    short, long = (paper.bootstrap_least_squares(X, y, weights[m:], start=m).std(axis=0) for m in (12, 200))
    np.testing.assert_allclose(long / short, np.sqrt(1 / 2), rtol=0.2)  # only half of the records still vary


# Robust and federated


@quick
@given(seeds)
def test_robust_covariance_is_hc0(seed: int) -> None:
    X, y = regression(seed)
    truth = sm.OLS(y, X).fit(cov_type="HC0").cov_params()
    np.testing.assert_allclose(paper.robust_covariance(X, y), truth, rtol=1e-7, atol=1e-10)


@quick
@given(seeds)
def test_federated_covariance_is_the_clustered_one_in_any_order(seed: int) -> None:
    X, y, cluster = clustered(seed)
    fit = paper.recursive_least_squares(X, y, start=30)
    scores = list(by_cluster(X, y, cluster, fit.coef))
    np.random.default_rng(seed).shuffle(scores)
    truth = sm.OLS(y, X).fit(cov_type="cluster", cov_kwds={"groups": cluster, "use_correction": False})
    np.testing.assert_allclose(paper.federated_covariance(fit.bread, scores), truth.cov_params(), rtol=1e-7)


def test_clients_of_one_record_give_hc0_and_a_single_client_gives_nothing() -> None:
    X, y = regression(11)
    fit = paper.recursive_least_squares(X, y, start=20)
    singles = paper.federated_covariance(fit.bread, by_cluster(X, y, np.arange(120), fit.coef))
    np.testing.assert_allclose(singles, paper.robust_covariance(X, y), rtol=1e-7, atol=1e-10)
    whole = paper.federated_covariance(fit.bread, [paper.client_score(X, y, fit.coef)])
    np.testing.assert_allclose(whole, 0, atol=1e-16)  # Eq. 17 without its blocks


def test_petersens_published_standard_errors() -> None:
    firm, _, x, y = np.loadtxt(PETERSEN, unpack=True)
    X = np.column_stack([np.ones(len(x)), x])
    fit = paper.recursive_least_squares(X, y, start=20)
    covariance = paper.federated_covariance(fit.bread, by_cluster(X, y, firm.astype(np.int64), fit.coef))
    n, k, J = len(y), 2, len(np.unique(firm))
    stata = J / (J - 1) * (n - 1) / (n - k)
    assert np.sqrt(stata * np.diag(covariance)).round(4).tolist() == [0.0670, 0.0506]


# Delta method


def arm(X: Array, y: Array, cluster: Clusters, d: int) -> tuple[Array, Array]:
    """Sizes and sums of an arm's clusters."""
    mine = [(cluster == j) & (X[:, 1] == d) for j in np.unique(cluster[X[:, 1] == d])]
    return np.array([float(rows.sum()) for rows in mine]), np.array([y[rows].sum() for rows in mine])


@quick
@given(seeds)
def test_delta_variances_of_the_arms_add_to_the_clustered_variance_of_the_effect(seed: int) -> None:
    X, y, cluster = clustered(seed)
    truth = sm.OLS(y, X).fit(cov_type="cluster", cov_kwds={"groups": cluster, "use_correction": False})
    ours = sum(paper.delta_variance(*arm(X, y, cluster, d)) for d in (0, 1))
    assert ours == pytest.approx(truth.cov_params()[1, 1], rel=1e-9)


def test_the_published_delta_formula_is_too_large_by_the_mean_cluster_size() -> None:
    X, y, cluster = clustered(12)
    sizes, sums = arm(X, y, cluster, 1)
    mine = X[:, 1] == 1
    truth = sm.OLS(y[mine], np.ones(mine.sum())).fit(
        cov_type="cluster", cov_kwds={"groups": cluster[mine], "use_correction": False}
    )
    assert sizes.mean() > 3
    published = paper.delta_variance_published(sizes, sums)
    assert published == pytest.approx(sizes.mean() * truth.cov_params()[0, 0], rel=1e-9)
