"""Adjustment that makes the variance of a difference smallest: against a direct search, and by simulation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats

from foldaway.inference.levels import Levels, difference_of
from foldaway.inference.unequal_arms import contrast_coefficients, contrast_rate, with_freedom
from foldaway.inference.welch import Spread


def arms(seed: int, sizes: tuple[int, ...], slopes: tuple[float, ...], k: int = 2, trials: int = 1) -> list[Any]:
    """Covariates and outcomes of each arm: trials by records by (k covariates and y)."""
    rng = np.random.default_rng(seed)
    rows = []
    for n, slope in zip(sizes, slopes, strict=True):
        x = rng.normal(size=(trials, n, k))
        rows.append(np.concatenate([x, slope * x.sum(-1, keepdims=True) + rng.normal(size=(trials, n, 1))], -1))
    return rows


def products(rows: list[Any]) -> tuple[Any, Any, Any]:
    """Σ (x − x̄)(x − x̄)', Σ (x − x̄)(y − ȳ)' and n by arm."""
    away = [each - each.mean(axis=1, keepdims=True) for each in rows]
    both = np.stack([np.einsum("tni,tnj->tij", each, each) for each in away], axis=1)
    n = np.stack([np.full(len(each), float(each.shape[1])) for each in rows], axis=-1)
    return both[..., :-1, :-1], both[..., :-1, -1:], n


def variance(rows: list[Any], beta: Any) -> float:
    """Of all comparisons with the first arm, together."""
    each = [np.var((y := part[0])[:, -1] - y[:, :-1] @ beta) / len(y) for part in rows]
    return float(sum(other + each[0] for other in each[1:]))


@pytest.mark.parametrize(("sizes", "slopes"), [((300, 20), (2, -1)), ((200, 60, 15), (1, 0, 3))])
def test_no_other_coefficients_give_a_smaller_variance(sizes: Any, slopes: Any) -> None:
    rows = arms(1, sizes, slopes)
    beta = contrast_coefficients(*products(rows)).beta[0, :, 0]
    wanted = optimize.minimize(lambda b: variance(rows, b), np.zeros(2), tol=1e-12)
    assert variance(rows, beta) == pytest.approx(wanted.fun, rel=1e-9)
    assert beta == pytest.approx(wanted.x, abs=1e-4)


def test_equal_arms_have_the_pooled_slope() -> None:
    xx, xy, n = products(arms(2, (80, 80), (2, -1)))
    assert np.allclose(contrast_coefficients(xx, xy, n).beta, np.linalg.solve(xx.sum(1), xy.sum(1)))


def test_freedom_adds_up_to_the_rank_and_is_the_small_arms() -> None:
    xx, xy, n = products(arms(3, (400, 20), (1, 1), k=3))
    freedom = contrast_coefficients(xx, xy, n).freedom[0]
    assert freedom.sum() == pytest.approx(3)
    assert freedom[1] > 2.5
    twice = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, 0]])  # the second covariate comes again
    found = contrast_coefficients(twice @ xx @ twice.T, twice @ xy, n)
    assert found.freedom.sum() == pytest.approx(3)
    assert found.beta[0].T @ twice == pytest.approx(contrast_coefficients(xx, xy, n).beta[0].T)
    nothing = contrast_coefficients(0 * xx, 0 * xy, n)
    assert not nothing.beta.any()
    assert not nothing.freedom.any()


def test_a_covariates_unit_does_not_matter() -> None:
    xx, xy, n = products(arms(4, (90, 30), (1, 2)))
    scale = np.diag([1e6, 1e-5])
    moved = contrast_coefficients(scale @ xx @ scale, scale @ xy, n)
    assert scale @ moved.beta == pytest.approx(contrast_coefficients(xx, xy, n).beta)


def test_the_rate_is_the_coefficient_of_the_prediction() -> None:
    rows = arms(5, (300, 30), (2, 0), k=1)
    predicted = [np.stack([each[0, :, -1], each[0, :, -1] - 0.7 * each[0, :, 0]]) for each in rows]  # y and ỹ
    n = np.array([300.0, 30.0])
    squares = np.stack([np.cov(each) * (each.shape[1] - 1) for each in predicted])
    found = contrast_rate(Spread(n, n, np.zeros((2, 2)), squares))
    assert 0.7 * found.beta == pytest.approx(contrast_coefficients(*products(rows)).beta[0, 0, 0])
    assert found.freedom.sum() == pytest.approx(1)
    worthless = np.stack([np.full((2, 2), 5.0)] * 2)  # ỹ is y
    assert contrast_rate(Spread(n, n, np.zeros((2, 2)), worthless)).beta == 0


def read(rows: list[Any], kind: str) -> tuple[float, float]:
    """Coverage of an effect of zero and the mean width, plain, by the pooled slope or by the contrast's."""
    xx, xy, n = products(rows)
    found = contrast_coefficients(xx, xy, n)
    beta = {"plain": 0 * found.beta, "pooled": np.linalg.solve(xx.sum(1), xy.sum(1))}.get(kind, found.beta)
    left = [each[..., -1] - np.einsum("tnk,tk->tn", each[..., :-1], beta[..., 0]) for each in rows]
    mean, spread = np.stack([each.mean(1) for each in left], -1), np.stack([each.var(1, ddof=1) for each in left], -1)
    own = np.eye(2)
    levels = Levels(mean, (spread / n)[..., None] * own, (1 / (n - 1))[..., None] * own, n)
    difference = difference_of(with_freedom(levels, found.freedom) if kind == "freed" else levels, 1)
    reach = stats.t.ppf(0.975, difference.df) * np.sqrt(difference.variance)
    return float(np.mean(np.abs(difference.estimate) <= reach)), float(np.mean(reach))


def test_small_arms_that_choose_their_coefficients_are_covered() -> None:
    rows = arms(6, (285, 15), (1, 1), k=3, trials=1_500)
    (before, _), (now, width), (_, plain) = (read(rows, kind) for kind in ("contrast", "freed", "plain"))
    assert before < 0.9
    assert now > 0.935
    assert width < 0.7 * plain


def test_adjusting_for_what_differs_between_arms_is_never_much_wider_than_not_adjusting() -> None:
    for slopes in ((2, -1), (0, 0), (1, 1)):
        rows = arms(7, (3_000, 300), slopes, k=1, trials=200)
        widths = {kind: read(rows, kind)[1] for kind in ("plain", "pooled", "freed")}
        assert widths["freed"] < 1.01 * widths["plain"]
        assert widths["pooled"] > 1.5 * widths["plain"] or slopes != (2, -1)


def test_an_arm_with_fewer_records_than_it_takes_has_no_variance() -> None:
    n = np.array([100.0, 5.0])
    levels = with_freedom(Levels(np.zeros(2), np.eye(2), np.diag(1 / (n - 1)), n), np.array([0.5, 2.5]))
    assert np.isnan(levels.covariance[1, 1])
    assert levels.covariance[0, 0] == pytest.approx(99 / 98)
